"""Chooses names for separate target topics. With `on_recreated = "fresh"`, a source topic that was deleted and created
again gets a separate target topic, whose name deviates from the flow's naming.

The name of a separate target topic is chosen only once. Before the target topic is created, the fact
`mirrord.ledger.facts.core.CopyNamed` assigns the name to the source topic's id. From then on, the name in the ledger
applies to that source topic, even if the configuration changes.
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
    """The names that one flow's ledger has assigned to separate target topics, and the information needed to choose
    further names. With `on_recreated = "fresh"`, a source topic that was deleted and re-created is copied to a separate
    target topic."""

    bound: Mapping[TopicId, CopyNamed] = {}
    """The assigned names by source topic id, in the order in which they were chosen."""
    copied: Mapping[str, Sequence[TopicId]] = {}
    """For each name of a copied source topic, the ids of all copied topics that have had this name, oldest first."""
    held: Collection[str] = frozenset()
    """The names of all target topics that the flow has ever copied into. These topics may no longer exist."""
    fresh: bool = False
    """Whether `on_recreated = "fresh"` is set for the flow."""
    separator: str = SEPARATOR

    def of(self, topic_id: TopicId | None) -> str | None:
        """Return the name that the ledger has assigned to the source topic with this id. Return None if the flow's
        naming applies."""
        named = self.bound.get(topic_id) if topic_id is not None else None
        return named.target_topic if named is not None else None

    def needs_own(self, topic: str, topic_id: TopicId) -> bool:
        """Return whether a separate name must be chosen for this source topic. This is the case if a former topic with
        the same name was copied but this topic was not.

        A heartbeats topic never gets a separate name, because clients find it by its name.
        """
        before = self.copied.get(topic, ())
        is_new = bool(before) and topic_id not in before and topic_id not in self.bound
        return self.fresh and is_new and not is_heartbeats(topic, self.separator)

    def owners(self) -> dict[str, CopyNamed]:
        """Return the facts that have assigned names to source topics, by assigned name."""
        return {each.target_topic: each for each in self.bound.values()}

    def beside(self, topic: str) -> list[str]:
        """Return the names of the separate target topics of this source topic. The source topic may have been deleted
        and re-created several times."""
        return [each.target_topic for each in self.bound.values() if each.source_topic == topic]

    def replaces(self, topic_id: TopicId, topic: str, former: TopicId | None) -> bool:
        """Return whether this source topic has replaced the source topic with the id `former`. This is the case if both
        have the same name, `former` is the older one, and the newer one is copied into a separate target topic."""
        ids = [*self.copied.get(topic, ()), *self.bound]  # a name is assigned before the first record is copied
        if topic_id not in self.bound or former is None or former not in ids:
            return False
        return ids.index(former) < ids.index(topic_id)

    def chosen(self, name: str, taken: Collection[str]) -> str:
        """Choose a name for a separate target topic. The result consists of `name`, the separator and a number.

        `taken` contains the `plain_form` of the names that the new name must not collide with. These are the names of
        existing topics and the names that other topics will get.
        """
        for number in count(2):
            found = f"{name}{self.separator}{number}"
            if plain_form(found) not in taken:
                return found
        raise AssertionError("numbers end")


NAMING_ALONE = CopyNames()


def copy_names(state: FlowState, flow: FlowConfig) -> CopyNames:
    """Return the names that the flow's ledger has assigned to the separate target topics of re-created source
    topics."""
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
    """Return the ids of the target topics that the flow has copied into, including former ones. Each key of the result
    consists of the id of a source topic and the name of a target topic. Several target topics may have had this name,
    one after another."""
    found: dict[tuple[TopicId, str], frozenset[TopicId]] = {}
    for lane in state.lanes.values():
        where = (lane.key.source_topic_id, lane.target_topic)
        found[where] = found.get(where, frozenset()) | {lane.key.target_topic_id}
    return found
