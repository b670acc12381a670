"""Decides which flow may copy into which target topic, so that no two flows of one daemon copy into the same topic.

A target topic belongs to the flow that, according to its ledger, has created the topic or has a lane to it. The topic
belongs to that flow even while the flow is not running, so that no other flow can write to the topic during that time.
If this is true of no ledger, the topic belongs to the first flow that plans to copy into it.
"""

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Protocol

from mirrord.config.cross_checks import goes_back, share_topics
from mirrord.config.schema import FlowConfig
from mirrord.kafka.rules.topic import Topic
from mirrord.ledger.folding.failovers import has_ended
from mirrord.ledger.state import FlowState
from mirrord.model.names import Alias, ClusterId, TopicId
from mirrord.topics.rules.recreated_topic_names import NAMING_ALONE, CopyNames, copy_names, former_copies


class Ledger(Protocol):
    """Provides the current state of a flow's ledger."""

    @property
    def state(self) -> FlowState:
        """The current state of the ledger. A later call may return a different object."""
        ...


class Claims:
    """The owners of target topics, for all flows of one daemon or of one configuration."""

    def __init__(self, flows: Sequence[FlowConfig] = ()) -> None:
        """Create an object without claims. `flows` are all flows in the configuration, including those that other
        daemons run.
        """
        self.know(flows)
        self._planned: dict[tuple[ClusterId, str], tuple[str, str]] = {}
        """The flow and the source topic of each planned target topic. The key is the cluster id and the name of the
        target topic."""
        self._ledgers: dict[str, Ledger] = {}
        self._unread: dict[str, Alias] = {}
        """The flows whose ledgers have not been read yet, each with the alias of its target cluster."""
        self._news = asyncio.Event()

    def know(self, flows: Sequence[FlowConfig]) -> None:
        """Set the list of all flows in the configuration, including those that other daemons run."""
        self._flows = {flow.name: flow for flow in flows}

    def expect(self, flow: FlowConfig) -> None:
        """Announce that the flow's ledger will be read.

        Until the ledger has been read, other flows do not copy into existing topics that may belong to this flow.
        """
        if flow.name not in self._ledgers:
            self._unread[flow.name] = flow.target

    def read(self, flow: str, ledger: Ledger) -> None:
        """Record that the flow's ledger has been read, or that it does not exist."""
        self._unread.pop(flow, None)
        self._ledgers[flow] = ledger
        self._news.set()

    async def until_read(self, flow: FlowConfig, patience_s: float) -> None:
        """Wait until the ledgers of all other flows with the same target cluster have been read, but no longer than
        `patience_s` seconds.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(patience_s):
                while self._unread_beside(flow):
                    self._news.clear()
                    await self._news.wait()

    def hold(self, flow: str, cluster: ClusterId, targets: Mapping[str, str]) -> None:
        """Record that the flow plans to copy into these target topics, and into no others. `targets` maps the target
        topics to their source topics."""
        self._forget_plan(flow)
        for topic, source in targets.items():
            self._planned.setdefault((cluster, topic), (flow, source))

    def forget(self, flow: str) -> None:
        """Forget the claims of this flow, because the flow is no longer in the configuration."""
        self._forget_plan(flow)
        self._ledgers.pop(flow, None)
        self._unread.pop(flow, None)
        self._news.set()

    def of_flow(self, flow: str) -> "Claims":
        """Return only the claims of this flow, as if there were no other flows."""
        alone = Claims()
        if flow in self._ledgers:
            alone.read(flow, self._ledgers[flow])
        return alone

    def former_copies(self, flow: str) -> Mapping[tuple[TopicId, str], Collection[TopicId]]:
        """Return the ids of all target topics that the flow has ever copied into. In the returned mapping, each key
        consists of the id of a source topic and the name of a target topic."""
        ledger = self._ledgers.get(flow)
        return {} if ledger is None else former_copies(ledger.state)

    def has_ended(self, flow: str, topic: str) -> bool:
        """Return whether a failover has ended the copying of a source topic of this flow."""
        ledger = self._ledgers.get(flow)
        return ledger is not None and has_ended(ledger.state.recoveries, topic)

    def flow_back(self, flow: FlowConfig) -> str:
        """Return the name of a flow that copies topics with the same names in the opposite direction, or an empty
        string if there is none."""
        return next((name for name, other in self._flows.items() if goes_back(flow, other)), "")

    def copied_here(self, flow: FlowConfig) -> dict[TopicId, str]:
        """Return the flow's source topics into which a flow in the opposite direction has copied. The result maps the
        id of each of these topics to the name of the topic that was copied into it."""
        found: dict[TopicId, str] = {}
        for name, other in self._flows.items():
            if goes_back(flow, other) and name in self._ledgers:
                found |= _copies(self._ledgers[name].state)
        return found

    def names(self, flow: FlowConfig) -> CopyNames:
        """Return the names of target topics that deviate from the flow's naming, as recorded in the flow's ledger."""
        ledger = self._ledgers.get(flow.name)
        return NAMING_ALONE if ledger is None else copy_names(ledger.state, flow)

    def of_others(self, flow: FlowConfig, cluster: ClusterId, topics: Iterable[Topic]) -> dict[str, str]:
        """Return the target topics that the flow must not copy into, each with the reason.

        `topics` are all topics on the target cluster. Each reason continues the sentence "would be copied into X,
        which".
        """
        own = _owned(self._ledgers[flow.name].state) if flow.name in self._ledgers else {}
        copied = {
            topic_id: f"is the copy of {source} in the flow {name}"
            for name, ledger in self._ledgers.items()
            if name != flow.name and not self._shares(flow, name)
            for topic_id, source in _owned(ledger.state).items()
        }
        named = {
            each.target_topic: f"is the copy of {each.source_topic} in the flow {name}"
            for name, ledger in self._ledgers.items()
            if name != flow.name and ledger.state.target_cluster == cluster and not self._shares(flow, name)
            for each in ledger.state.named.values()
        }
        unread = self._unread_beside(flow)
        unknown = f"may be a copy of the flow {unread[0]}: its ledger is not read yet" if unread else ""
        others = dict(named)
        for topic in topics:
            if topic.topic_id not in own and (reason := copied.get(topic.topic_id, unknown)):
                others[topic.name] = reason
        for (where, name), (owner, source) in self._planned.items():
            if where == cluster and owner != flow.name and not self._shares(flow, owner):
                others[name] = f"is the copy of {source} in the flow {owner}"
        return others

    def _unread_beside(self, flow: FlowConfig) -> list[str]:
        return [
            name
            for name, target in self._unread.items()
            if name != flow.name and target == flow.target and not self._shares(flow, name)
        ]

    def _shares(self, flow: FlowConfig, other: str) -> bool:
        return other in self._flows and share_topics(tuple(self._flows.values()), flow, self._flows[other])

    def _forget_plan(self, flow: str) -> None:
        for key in [key for key, (owner, _) in self._planned.items() if owner == flow]:
            del self._planned[key]


def _copies(ledger: FlowState) -> dict[TopicId, str]:
    """Return the target topics to which the flow has a lane. The result maps the id of each target topic to the name of
    its source topic."""
    return {lane.key.target_topic_id: lane.source_topic for lane in ledger.lanes.values()}


def _owned(ledger: FlowState) -> dict[TopicId, str]:
    """Return the result of `_copies`, and also the target topics that the flow has created.

    A new topic has no lane until the next discovery. Without this rule, a flow would not copy into a topic that it has
    just created while the source of another flow does not answer, because that flow's ledger is then not read.
    """
    created = {topic_id: topic.source_topic for topic_id, topic in ledger.topics.items() if topic.created}
    return created | _copies(ledger)
