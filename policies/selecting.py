"""Decides which source topics a flow copies, and gives the reason for each topic that it does not copy.

A topic is selected if it meets three conditions. Its entire name matches one of the patterns in `topics`. Its name
matches none of the patterns in `exclude`. The user's `select` policy does not refuse it.

Four kinds of topics are never selected, even if they match: Kafka's internal topics, topics in which mirrord and
MirrorMaker 2 store their state, topics whose target topics would have the name of such a topic, and topics that have
already passed through the target cluster according to their names. User topics whose names merely end in `.internal`
are selected (KIP-1074).

A flow can copy certain topics, such as MirrorMaker 2's heartbeats, regardless of the patterns and the policy.
"""

import functools
import re
from collections.abc import Callable, Iterable
from typing import Literal, Protocol

from mirrord.model.errors import PolicyFault
from mirrord.model.names import RESERVED_PREFIXES, Alias
from policies.naming import Naming

Refusal = Literal["internal", "excluded", "not-included", "cycle", "left-out", "fault"]
"""The reason why a topic is not copied:

- "internal": it belongs to Kafka, MirrorMaker 2 or mirrord, or its target topic would have the name of such a topic.
- "excluded": it matches a pattern in `exclude`.
- "not-included": it matches no pattern in `topics`.
- "cycle": according to its name, it has already passed through the target.
- "left-out": the user's policy refuses it.
- "fault": a user's policy returns no valid result.
"""


class Leaving(Protocol):
    """A policy that refuses some of the topics that the patterns in `topics` and `exclude` accept."""

    def refusal(self, topic: str) -> str | None:
        """Return one line that says why this topic is not copied, or None if the topic is copied. Raises PolicyFault if
        the policy fails."""
        ...


@functools.cache
def _internal(separator: str) -> re.Pattern[str]:
    # MirrorMaker 2 uses "." or "-" as the separator in internal names. A different separator can be configured
    # (KIP-949).
    between = rf"([.-]|{re.escape(separator)})"
    return re.compile(
        r"__.*"  # Kafka: __consumer_offsets, __transaction_state, __share_group_state, ...
        r"|mirrord\.[^.]+\.(ledger|state|probe|dead|repair|drill)"
        # MirrorMaker 2: offset syncs, Connect's own topics, checkpoints.
        rf"|mm2-(offset-syncs|configs|offsets|status){between}.+{between}internal"
        rf"|.+{between}checkpoints{between}internal"
    )


def is_internal(topic: str, separator: str = ".") -> bool:
    """Return whether a topic with this name belongs to Kafka, MirrorMaker 2 or mirrord.

    `separator` is the configured separator in the names of MirrorMaker 2's internal topics.
    """
    return _internal(separator).fullmatch(topic) is not None


def is_reserved(target: str, separator: str = ".") -> bool:
    """Return whether no target topic may have this name, because it is, or could become, the name of a topic of Kafka,
    MirrorMaker 2 or mirrord.

    This applies to every naming. Otherwise, a client that may create topics on the source could choose a name whose
    target topic is a ledger.
    """
    return target.startswith(RESERVED_PREFIXES) or is_internal(target, separator)


class Selection:
    """Decides which topics one flow copies."""

    def __init__(
        self,
        include: Iterable[str],
        exclude: Iterable[str],
        target: Alias,
        naming: Naming,
        internal_separator: str = ".",
        leaving: Leaving | None = None,
        always: Callable[[str], bool] = lambda _: False,
    ) -> None:
        """`include` and `exclude` are patterns that must match whole topic names. `leaving` is the user's policy, if
        there is one. If `always` returns True for a topic, neither the patterns nor the policy can exclude it."""
        self._include = [re.compile(pattern) for pattern in include]
        self._exclude = [re.compile(pattern) for pattern in exclude]
        self._target = target
        self._naming = naming
        self._internal_separator = internal_separator
        self._leaving = leaving
        self._always = always

    def refusal(self, topic: str) -> Refusal | None:
        """Return why this source topic is not copied, or None if it is copied."""
        if is_internal(topic, self._internal_separator):
            return "internal"
        always = self._always(topic)
        if not always and not any(pattern.fullmatch(topic) for pattern in self._include):
            return "not-included"
        if not always and any(pattern.fullmatch(topic) for pattern in self._exclude):
            return "excluded"
        try:
            # As in MirrorSourceConnector.isCycle, all clusters in the name are checked, not only the last one. Flows
            # can form a ring of several clusters, such as eu -> us -> asia -> eu.
            if self._target in self._naming.hops(topic):
                return "cycle"
            if not always and self._leaving is not None and self._leaving.refusal(topic) is not None:
                return "left-out"
        except PolicyFault:
            return "fault"
        return "internal" if self._is_reserved(topic) else None

    def _is_reserved(self, topic: str) -> bool:
        try:
            return is_reserved(self._naming.target_topic(topic), self._internal_separator)
        except PolicyFault:
            return False  # the topic has no target topic; the caller that asks for its name gets the fault

    def reason(self, topic: str) -> str:
        """Return the reason that a user's policy gives for refusing the topic. If the policy fails, return the
        fault."""
        try:
            self._naming.hops(topic)
            return (self._leaving.refusal(topic) if self._leaving is not None else None) or ""
        except PolicyFault as fault:
            return str(fault)

    def excluded_by(self, topic: str) -> str | None:
        """Return the first pattern in `exclude` that matches this topic name, or None if no pattern matches."""
        return next((pattern.pattern for pattern in self._exclude if pattern.fullmatch(topic)), None)

    def selects(self, topic: str) -> bool:
        """Return whether this source topic is copied. Raises PolicyFault if a user's policy returns no valid result."""
        refusal = self.refusal(topic)
        if refusal == "fault":
            raise PolicyFault(self.reason(topic))
        return refusal is None

    def copy_of(self, topic: str) -> str | None:
        """Return the name of this source topic's target topic. Return None if the topic is not copied, or if a user's
        policy returns no valid result."""
        try:
            return self._naming.target_topic(topic) if self.selects(topic) else None
        except PolicyFault:
            return None
