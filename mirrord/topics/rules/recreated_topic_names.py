"""Names of target topics that the naming does not decide, because a recreated topic may get a separate target topic.

The name is chosen once and bound in the ledger to the source topic's id (`mirrord.ledger.facts.core.CopyNamed`) before
the target topic is created. From then on every lookup of that topic's copy follows the ledger, whatever the
configuration says later.
"""

from collections.abc import Collection, Mapping, Sequence
from itertools import count

import msgspec

from mirrord.config.schema import FlowConfig
from mirrord.ledger.facts.core import CopyNamed
from mirrord.ledger.state import FlowState
from mirrord.model.names import TopicId
from mirrord.topics.rules.colliding_names import plain_form
from policies.naming import SEPARATOR, is_heartbeats


class CopyNames(msgspec.Struct, frozen=True):
    """The bound names of one flow, according to its ledger at one moment."""

    bound: Mapping[TopicId, CopyNamed] = {}
    """Bound names by the source topic's id, in the order in which they were chosen."""
    copied: Mapping[str, Sequence[TopicId]] = {}
    """Source topics with lanes: all topic ids that have had this name, in chronological order."""
    held: Collection[str] = frozenset()
    """Target topics with lanes, whether or not they still exist."""
    fresh: bool = False
    """Whether a recreated topic gets a separate target topic."""
    separator: str = SEPARATOR

    def of(self, topic_id: TopicId | None) -> str | None:
        """Return the name that is bound to a source topic, or None if the naming decides."""
        named = self.bound.get(topic_id) if topic_id is not None else None
        return named.target_topic if named is not None else None

    def needs_own(self, topic: str, topic_id: TopicId) -> bool:
        """Whether a name must be chosen: an earlier topic of this name was copied, and nothing of this one was.

        Each cluster has a single topic of heartbeats, whose name its readers look for, so it is never renamed.
        """
        before = self.copied.get(topic, ())
        is_new = bool(before) and topic_id not in before and topic_id not in self.bound
        return self.fresh and is_new and not is_heartbeats(topic, self.separator)

    def owners(self) -> dict[str, CopyNamed]:
        """Return the bound names, by target topic."""
        return {each.target_topic: each for each in self.bound.values()}

    def beside(self, topic: str) -> list[str]:
        """Return all names that are bound to copies of topics of this name."""
        return [each.target_topic for each in self.bound.values() if each.source_topic == topic]

    def replaces(self, topic_id: TopicId, topic: str, former: TopicId | None) -> bool:
        """Whether the topic has a separate copy, and the topic with the id `former` had the same name before it."""
        ids = [*self.copied.get(topic, ()), *self.bound]  # bound ids that are not copied yet came last
        if topic_id not in self.bound or former is None or former not in ids:
            return False
        return ids.index(former) < ids.index(topic_id)

    def chosen(self, name: str, taken: Collection[str]) -> str:
        """Return a separate name for a copy.

        `taken` holds the `plain_form` of names that exist or belong to another topic.
        """
        for number in count(2):
            found = f"{name}{self.separator}{number}"
            if plain_form(found) not in taken:
                return found
        raise AssertionError("numbers end")


NAMING_ALONE = CopyNames()


def copy_names(state: FlowState, flow: FlowConfig) -> CopyNames:
    """Return what the ledger says about the names of the flow's copies."""
    fresh = flow.on_recreated == "fresh"
    if not fresh and not state.named:
        return NAMING_ALONE
    copied: dict[str, dict[TopicId, None]] = {}
    for lane in sorted(state.lanes.values(), key=lambda lane: lane.age):
        copied.setdefault(lane.source_topic, {})[lane.key.source_topic_id] = None
    ids = {topic: tuple(found) for topic, found in copied.items()}
    held = frozenset(lane.target_topic for lane in state.lanes.values())
    return CopyNames(dict(state.named), ids, held, fresh, flow.separator)


def former_copies(state: FlowState) -> Mapping[tuple[TopicId, str], frozenset[TopicId]]:
    """Return the ids under which target topics have existed, for each source topic and the name of its target topic."""
    found: dict[tuple[TopicId, str], frozenset[TopicId]] = {}
    for lane in state.lanes.values():
        where = (lane.key.source_topic_id, lane.target_topic)
        found[where] = found.get(where, frozenset()) | {lane.key.target_topic_id}
    return found
