"""How copies are named beside the naming: a topic that was created again may have a copy of its own.

Its name is chosen once and bound in the ledger to the topic's id (`mirrord.ledger.facts.core.CopyNamed`), before the
copy is created. From then on whoever asks for that topic's copy goes by the ledger, whatever the configuration says
later.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import count

import msgspec

from mirrord.ledger.facts.core import CopyNamed
from mirrord.model.names import TopicId
from policies.naming import SEPARATOR, is_heartbeats


class CopyNames(msgspec.Struct, frozen=True):
    """Of one flow, by its ledger at one moment."""

    bound: Mapping[TopicId, CopyNamed] = {}
    """By the source topic's id, in the order in which they were given."""
    copied: Mapping[str, Sequence[TopicId]] = {}
    """Source topics with lanes: the ids under which there was one of the name, in the order in which they came."""
    held: Collection[str] = frozenset()
    """Target topics with lanes, whether or not they are still there."""
    fresh: bool = False
    """A topic that was created again gets a copy of its own."""
    separator: str = SEPARATOR

    def of(self, topic_id: TopicId | None) -> str | None:
        """The name that is bound to a source topic; None: the naming tells it."""
        named = self.bound.get(topic_id) if topic_id is not None else None
        return named.target_topic if named is not None else None

    def needs_own(self, topic: str, topic_id: TopicId) -> bool:
        """Whether a name is to be chosen: one of this name was copied before, and nothing of this one was.

        Each cluster has one topic of heartbeats, whose name readers look for."""
        before = self.copied.get(topic, ())
        is_new = bool(before) and topic_id not in before and topic_id not in self.bound
        return self.fresh and is_new and not is_heartbeats(topic, self.separator)

    def owners(self) -> dict[str, CopyNamed]:
        """The names that are bound, by target topic."""
        return {each.target_topic: each for each in self.bound.values()}

    def beside(self, topic: str) -> list[str]:
        """All names that are bound to copies of topics of this name."""
        return [each.target_topic for each in self.bound.values() if each.source_topic == topic]

    def replaces(self, topic_id: TopicId, topic: str, former: TopicId | None) -> bool:
        """Whether the topic has a copy of its own, and the one with the id `former` was there under its name before."""
        ids = [*self.copied.get(topic, ()), *self.bound]  # what is bound and not copied yet came last
        if topic_id not in self.bound or former is None or former not in ids:
            return False
        return ids.index(former) < ids.index(topic_id)

    def chosen(self, name: str, taken: Collection[str]) -> str:
        """A copy's name of its own. `taken` are the `plain_form` of what is there, or has another owner."""
        for number in count(2):
            found = f"{name}{self.separator}{number}"
            if plain_form(found) not in taken:
                return found
        raise AssertionError("numbers end")


NAMING_ALONE = CopyNames()


def plain_form(topic: str) -> str:
    """Kafka refuses two topics whose names are equal in this (org.apache.kafka.common.internals.Topic.hasCollision)."""
    return topic.replace(".", "_")


def plain_forms(topics: Iterable[str]) -> set[str]:
    """Of each."""
    return {plain_form(topic) for topic in topics}
