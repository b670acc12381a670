"""Wraps a user's policies for topic names, topic selection and configs. The wrappers have the same interfaces as the
built-in policies, and check every result.

If the user's code raises an exception or returns an invalid result, the wrapper raises PolicyFault for the name in
question. The wrapper for configs does not raise PolicyFault, but leaves the config in question unchanged.

Most valid results are cached and used from then on. Without the cache, a topic could move to a different target topic,
because the policy might return a different result later. Results for topics that mirrord no longer asks about, such as
deleted topics, are dropped from the cache if there are too many of them.
"""

from collections.abc import Sequence
from typing import TypeVar, cast

from mirrord.config.fault_text import shown
from mirrord.config.flow_features import topic_name
from mirrord.model.errors import PolicyFault
from mirrord.model.names import Alias
from policies.class_loading import line_of
from policies.contracts import NamingPolicy, PropertyPolicy, SelectionPolicy
from policies.naming import IdentityNaming, is_heartbeats
from policies.properties import Properties
from policies.selecting import is_reserved

NAMES_KEPT = 100_000
"""Maximum number of topics for which a result is cached. mirrord asks about all topics of a cluster at each refresh, so
the results for existing topics are always the most recently used ones."""

T = TypeVar("T")


class _Answers(dict[str, T]):
    """The cached results for topics, by the topic's name. The most recently used ones are at the end."""

    def use(self, topic: str) -> T:
        """Return the result for a topic. Raises KeyError if it is not cached."""
        self[topic] = answer = self.pop(topic)
        return answer

    def keep(self, topic: str, answer: T) -> T:
        """Cache the result for a topic, and return it."""
        self[topic] = answer
        if len(self) > NAMES_KEPT:
            del self[next(iter(self))]
        return answer


class _Asked:
    """Calls a user's policy. `label` names the policy in error messages."""

    def __init__(self, label: str, policy: object) -> None:
        self._label = label
        self._policy = policy

    def has(self, method: str) -> bool:
        return hasattr(self._policy, method)

    def ask(self, method: str, question: str) -> object:
        try:
            return getattr(self._policy, method)(question)
        except (Exception, SystemExit) as error:
            raise PolicyFault(f"{self._label}: {method}({shown(question)}) raised {line_of(error)}") from error

    def wrong(self, method: str, question: str, answer: object, allowed: str) -> PolicyFault:
        size = f" ({len(answer)} characters)" if isinstance(answer, str) else ""
        found = "nothing" if answer is None else f"{shown(answer)}{size}"
        return PolicyFault(f"{self._label}: {method}({shown(question)}) returned {found}; allowed: {allowed}")


class GuardedNaming:
    """A `policies.naming.Naming` that calls a user's policy and checks the results. As under every naming policy,
    heartbeats topics get the source's alias as a prefix.
    """

    def __init__(
        self, label: str, policy: NamingPolicy, source: Alias, separator: str, internal_separator: str
    ) -> None:
        self._asked = _Asked(label, policy)
        self._heartbeats = IdentityNaming(source, separator)
        self._separator = separator
        self._internal_separator = internal_separator
        self._targets = _Answers[str]()
        self._hops = _Answers[tuple[Alias, ...]]()

    def target_topic(self, source_topic: str) -> str:
        """Return the topic's name on the target. Raises PolicyFault if the policy fails."""
        if is_heartbeats(source_topic, self._separator):
            return self._heartbeats.target_topic(source_topic)
        if source_topic in self._targets:
            return self._targets.use(source_topic)
        return self._targets.keep(source_topic, self._ask_target(source_topic))

    def source_topic(self, target_topic: str) -> str | None:
        """Return the topic's name on the source, or None if the topic does not belong to this flow. Raises PolicyFault
        if the policy fails."""
        if is_heartbeats(target_topic, self._separator):
            return self._heartbeats.source_topic(target_topic)
        answer = self._asked.ask("source_topic", target_topic)
        if answer is not None and not isinstance(answer, str):
            raise self._asked.wrong("source_topic", target_topic, answer, "a string, or None")
        return answer

    def target_prefix(self, prefix: str) -> str | None:
        """Return the prefix of the target topics of all source topics whose names begin with `prefix`. Return None if
        there is no prefix that only these target topics have. Raises PolicyFault if the policy fails."""
        if not self._asked.has("target_prefix"):
            return None
        answer = self._asked.ask("target_prefix", prefix)
        if answer is None:
            return None
        if not isinstance(answer, str):
            raise self._asked.wrong("target_prefix", prefix, answer, "a string, or None")
        # ACLs on prefixes are derived from the result. An incorrect result would permit access to other topics.
        for source, target in self._targets.items():
            if source.startswith(prefix) != target.startswith(answer):
                rule = (
                    f"a string with which the copies of such topics begin and no others; {source} is copied to {target}"
                )
                raise self._asked.wrong("target_prefix", prefix, answer, rule)
        return answer

    def hops(self, topic: str) -> tuple[Alias, ...]:
        """Return the aliases of the clusters that the topic has passed through according to its name, most recent
        cluster first. Raises PolicyFault if the policy fails.
        """
        if is_heartbeats(topic, self._separator):
            return self._heartbeats.hops(topic)
        if not self._asked.has("hops"):
            return ()
        if topic in self._hops:
            return self._hops.use(topic)
        answer = self._asked.ask("hops", topic)
        # Only lists and tuples are valid, because a str would also be a sequence of strings.
        items = cast("Sequence[object]", answer) if isinstance(answer, list | tuple) else [None]
        if not all(isinstance(item, str) for item in items):
            rule = "a tuple or list of aliases, empty for none"
            raise self._asked.wrong("hops", topic, cast(object, answer), rule)
        return self._hops.keep(topic, tuple(str(item) for item in items))

    def _ask_target(self, source_topic: str) -> str:
        answer = self._asked.ask("target_topic", source_topic)
        try:
            target = topic_name(answer)
        except ValueError as rule:
            raise self._asked.wrong("target_topic", source_topic, answer, str(rule)) from None
        if target in {".", ".."}:
            raise self._asked.wrong("target_topic", source_topic, answer, "a topic's name (Kafka accepts no such name)")
        if is_reserved(target, self._internal_separator):
            rule = "a name that does not belong to Kafka, MirrorMaker 2 or mirrord"
            raise self._asked.wrong("target_topic", source_topic, answer, rule)
        back = self._asked.ask("source_topic", target)
        if back != source_topic:
            rule = f"{shown(source_topic)}: it must be the inverse of target_topic, which made one of the other"
            raise self._asked.wrong("source_topic", target, back, rule)
        return target


class GuardedSelection:
    """A `policies.selecting.Leaving` that calls a user's policy and checks the results."""

    def __init__(self, label: str, policy: SelectionPolicy) -> None:
        self._label = label
        self._asked = _Asked(label, policy)
        self._answers = _Answers[str | None]()

    def refusal(self, topic: str) -> str | None:
        """Return why the topic is not copied, or None if it is copied. Raises PolicyFault if the policy fails."""
        if topic in self._answers:
            return self._answers.use(topic)
        answer = self._asked.ask("refusal", topic)
        if answer is not None and (not isinstance(answer, str) or not answer.strip()):
            raise self._asked.wrong("refusal", topic, answer, "a reason as a string, or None")
        return self._answers.keep(topic, None if answer is None else f"{self._label}: {' '.join(answer.split())}")


class GuardedProperties:
    """A `policies.properties.Properties` that calls a user's policy and checks the results. The user's policy can only
    exclude further configs, in addition to those that the built-in rule `base` excludes."""

    def __init__(self, label: str, policy: PropertyPolicy, base: Properties) -> None:
        self._asked = _Asked(label, policy)
        self._base = base
        self._answers: dict[tuple[str, str], bool] = {}
        self._faults: dict[tuple[str, str], str] = {}

    @property
    def faults(self) -> tuple[str, ...]:
        """One line about each call for which the policy has returned no valid result."""
        return tuple(self._faults.values())

    def passes(self, name: str) -> bool:
        """Return whether the config is synced from the source. Return False if the policy returns no valid result."""
        return self._base.passes(name) and self._answer("passes", name, default=False)

    def takes_default(self, name: str) -> bool:
        """Return whether mirrord sets this config on the target topic even if it is not set on the source topic. The
        value is then the source topic's effective value. Return False if the policy returns no valid result."""
        if not self._asked.has("takes_default"):
            return self._base.takes_default(name)
        return self._answer("takes_default", name, default=False)

    def _answer(self, method: str, name: str, *, default: bool) -> bool:
        question = (method, name)
        if question not in self._answers:
            try:
                answer = self._asked.ask(method, name)
                if not isinstance(answer, bool):
                    raise self._asked.wrong(method, name, answer, "True or False")
            except PolicyFault as fault:
                self._faults[question] = f"{fault}; the setting is left alone"
                return default
            self._faults.pop(question, None)
            self._answers[question] = answer
        return self._answers[question]
