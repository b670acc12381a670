"""Determines which lanes a flow should have. To do so, it reads the topics of both clusters, creates missing target
topics, and adds missing partitions.

A fault that concerns one topic is reported for that topic and does not affect other topics. A broker that has just
started may not list all topics yet. Therefore, a topic counts as deleted only if two consecutive responses do not list
it.

Even after a broker has confirmed the creation of a topic, it may not list the topic yet. If many topics are created at
once, it takes several seconds before all of them are listed. Each topic gets its lanes once it is listed. Until then,
discovery does not create the topic again.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec
import structlog

from mirrord.config.schema import FlowConfig
from mirrord.kafka.client.topic_admin import ClusterTopics, TopicAdmin
from mirrord.kafka.rules.topic import Topic, TopicShape, capped
from mirrord.ledger.facts.core import ConfigChange, ConfigsSynced, CopyNamed, PartitionsGrown, TopicCreated
from mirrord.ledger.state import FlowState
from mirrord.model.errors import EnvironmentFault
from mirrord.model.names import ClusterId, TopicId
from mirrord.topics.rules.hazards import status_hazards
from mirrord.topics.rules.topic_caps import CappedTopics, within_limits
from mirrord.topics.rules.topic_configs import fewer_replicas, replication_factor
from mirrord.topics.rules.topic_plan import CreateTopic, GrowTopic, PlannedLane, TopicsPlan, plan_topics
from mirrord.topics.rules.two_way_deletions import halves, not_again
from mirrord.topics.rules.unusable_topics import invalid_names
from mirrord.topics.topic_claims import Claims
from policies.flow_policies import naming_of, selection_of
from policies.selecting import Refusal, Selection

SHOWN_WITHIN_S = 0.5
"""How long, in seconds, a refresh waits for the target to list the changes that the refresh has made. The next refresh
handles changes that are listed later."""
NOT_SHOWN_AFTER_S = 10.0
"""If the target still does not list a change after this many seconds, a fault is reported for the topic."""
GIVEN_UP_AFTER_S = 60.0
"""If the target still does not list a change after this many seconds, the change is made again. Either it was lost, or
another client has reverted it."""
POLL_S = 0.1
SOON_S = 0.5
"""Time, in seconds, until the next refresh if the target does not list all changes yet."""
REPEAT_S = 5.0
"""Interval, in seconds, at which a refresh is repeated until it succeeds without faults. This interval is used only if
the setting `refresh` turns off periodic refreshes."""
_JUDGED_AT_ONCE = 500
"""Number of topic names that are compared with the flow's patterns at once. They take a few milliseconds."""
_ALL = 1 << 31
"""More partitions than a topic can have."""
_TOO_FEW_BROKERS = "INVALID_REPLICATION_FACTOR"

SettingsOf = Callable[[Sequence[str]], Awaitable[Mapping[str, Mapping[str, str]]]]
"""A function that is given source topics and returns the configs with which to create their target topics. If the
result does not contain a source topic, its target topic is created without configs."""
Bind = Callable[[Sequence[CopyNamed]], Awaitable[None]]
"""A function that records names of target topics in the ledger. The plan has chosen these names, which deviate from the
flow's naming. After the call, `Claims.names` also returns them, because it reads the ledger."""
Note = Callable[[Sequence[Topic], ClusterId], Awaitable[None]]
"""A function that is called before a refresh makes any changes. The first argument contains the source topics that the
flow selects. It also contains the topics for which a user's policy has returned no valid result, because the flow may
select them later. The second argument is the id of the source cluster. If the function raises EnvironmentFault, the
refresh makes no changes."""

log = structlog.get_logger()


class Discovered(msgspec.Struct, frozen=True):
    """The result of one refresh of discovery."""

    lanes: tuple[PlannedLane, ...]
    facts: tuple[TopicCreated | ConfigsSynced | PartitionsGrown, ...]
    """Facts about the changes that the target now lists for the first time. The caller writes these facts to the
    ledger."""
    faults: Mapping[str, str]
    """By source topic: the reason why the topic is not copied, or not copied completely."""
    remarks: Mapping[str, str]
    notice: str
    """One line for operators about the whole flow, or an empty string."""
    source: ClusterTopics
    target: ClusterTopics
    unshown: bool = False
    """Whether there are changes that the target does not list yet. If so, the next refresh follows soon."""
    names: Mapping[str, str] = {}
    """The name of each target topic, by source topic."""
    beyond_limits: Collection[str] = ()
    """Source topics in `faults` that are not copied, or not completely, because of the flow's limits."""

    def with_faults(self, faults: Mapping[str, str]) -> "Discovered":
        """Return a copy of this result that also contains these faults."""
        return msgspec.structs.replace(self, faults={**self.faults, **faults}) if faults else self

    def note(self, more: Iterable[str]) -> str:
        """Return one line for operators: the first fault or remark, and how many more there are. The lines in `more`
        count as faults. Return an empty string if there are no faults and no remarks."""
        lines = [line for line in (*self.faults.values(), *more, *self.remarks.values(), self.notice) if line]
        return "" if not lines else lines[0] if len(lines) == 1 else f"{lines[0]} (and {len(lines) - 1} more)"


def hazards_of(flow: FlowConfig, found: Discovered, ledger: FlowState | None) -> tuple[str, ...]:
    """Return one line for each hazard that the status of a running flow must report. `found` is the latest discovery
    result, and `ledger` is the state of the flow's ledger, if it is known."""
    known = ledger.lanes if ledger is not None else {}
    begins: dict[str, int] = {}
    for lane in found.lanes:
        runs = known[lane.lane].target_runs if lane.lane in known else None
        first = runs.first if runs is not None else None
        if first is not None and first.ordinal == 0:
            begins[f"{lane.target_topic}-{lane.key.partition}"] = first.offset
    return tuple(status_hazards(flow, found.source.topics, found.target.topics, begins))


class DiscoveryPreview(NamedTuple):
    """The topics of a flow's two clusters at one point in time, and the changes that a refresh would make."""

    source: ClusterTopics
    target: ClusterTopics
    plan: TopicsPlan


class Done(NamedTuple):
    """A change that the target has confirmed but does not list yet: a topic was created, or partitions were added to a
    topic."""

    step: CreateTopic | GrowTopic
    settings: Mapping[str, str]
    at: float
    """The time of the change, on the event loop's clock."""


class Discovery:
    """Discovers the topics of one flow, and creates its target topics."""

    def __init__(
        self,
        flow: FlowConfig,
        source: TopicAdmin,
        target: TopicAdmin,
        claims: Claims,
        settings_of: SettingsOf | None = None,
    ) -> None:
        self._flow = flow
        self._source = _Memory(source)
        self._target = _Memory(target)
        self._claims = claims
        self._selection = selection_of(flow)
        self._target_name: Callable[[str], str] = naming_of(flow).target_topic
        self._settings_of = settings_of
        self._done: dict[str, Done] = {}
        """Changes that the target does not list yet, by target topic."""
        self._logged: dict[str, str] = {}
        self._noticed = ""

    @property
    def selection(self) -> Selection:
        """The object that decides which topics are copied, and gives the reason for each topic that is not copied."""
        return self._selection

    def go_on_from(self, former: "Discovery") -> None:
        """Take over the changes that another `Discovery` of the same flow has made and that the target does not list
        yet."""
        self._done = former._done

    async def preview(self) -> DiscoveryPreview:
        """Return the topics of both clusters and the planned changes, without making any changes.

        Raises EnvironmentFault if a cluster does not answer.
        """
        source, target = await asyncio.gather(self._source.read(), self._target.read())
        return DiscoveryPreview(source, target, self._plan(source, target, await self._refusals(source)))

    async def refresh(self, bind: Bind | None = None, note: Note | None = None) -> Discovered:
        """Read the topics of both clusters, create missing topics and partitions on the target, and read the target
        again.

        `bind` records in the ledger the names of target topics that deviate from the flow's naming. A topic with such a
        name is not created until the name is in the ledger. Without `bind`, these topics are not created. Raises
        EnvironmentFault if a cluster does not answer.
        """
        source, target = await asyncio.gather(self._source.read(), self._target.read())
        refusals = await self._refusals(source)
        if note is not None:
            unsure = [topic for name, topic in source.topics.items() if refusals[name] == "fault"]
            await note([*self._capped(source, target, refusals).topics, *unsure], source.cluster_id)
        plan = self._plan(source, target, refusals)
        self._claims.hold(self._flow.name, target.cluster_id, plan.targets)
        if plan.unbound and bind is not None:
            await bind(plan.unbound)
            plan = self._plan(source, target, refusals)
        plan = plan.without_unbound()
        self._give_up()
        faults: dict[str, str] = {}
        create = [step for step in plan.create if step.target_topic not in self._done]
        grow = [step for step in plan.grow if step.target.name not in self._done]
        if create or grow:
            settings, faults = await self._settings(create)
            faults |= await self._create(create, target.brokers, settings) if not faults else {}
            faults |= await self._grow(grow)
            self._note([step for step in (*create, *grow) if step.source.name not in faults], settings)
            target = await self._until_shown(target)
            plan = self._plan(source, target, refusals).without_unbound()
            # A failed change is not a fault if another client has made the change in the meantime.
            missing = {step.source.name for step in (*plan.create, *plan.grow)}
            faults = {topic: line for topic, line in faults.items() if topic in missing}
        facts = self._facts(target)
        faults |= {**self._not_shown(), **plan.faults, **plan.unanswered}
        self._log_lines({**plan.remarks, **faults})
        notice = self._notice(plan, source, target)
        is_unshown = bool(self._done)
        return Discovered(
            plan.lanes, facts, faults, plan.remarks, notice, source, target, is_unshown, plan.names, plan.beyond_limits
        )

    def _notice(self, plan: TopicsPlan, source: ClusterTopics, target: ClusterTopics) -> str:
        pairs = (
            (source.topics[name], target.topics[copy])
            for copy, name in plan.targets.items()
            if name in source.topics and copy in target.topics
        )
        notice = fewer_replicas(self._flow.replication_factor, pairs, target.brokers)
        if notice and notice != self._noticed:
            log.warning("fewer_replicas", flow=self._flow.name, reason=notice)
        self._noticed = notice
        return notice

    async def _refusals(self, source: ClusterTopics) -> Mapping[str, Refusal | None]:
        """Return for each source topic why it is not copied, or None if it is copied. Other tasks run in between."""
        refusals: dict[str, Refusal | None] = {}
        for number, name in enumerate(source.topics):
            if number % _JUDGED_AT_ONCE == _JUDGED_AT_ONCE - 1:
                await asyncio.sleep(0)
            is_over = self._claims.has_ended(self._flow.name, name)
            refusals[name] = "left-out" if is_over else self._selection.refusal(name)
        return refusals

    def _plan(self, source: ClusterTopics, target: ClusterTopics, refusals: Mapping[str, Refusal | None]) -> TopicsPlan:
        selected, left_out = self._capped(source, target, refusals)
        claimed = self._claims.of_others(self._flow, target.cluster_id, target.topics.values())
        former = self._claims.former_copies(self._flow.name)
        names = (self._target_name, claimed, former, self._claims.names(self._flow))
        plan = plan_topics(selected, target.topics, *names, on_deleted_copy=self._flow.on_deleted_copy)
        if self._claims.flow_back(self._flow):
            aliases = (self._flow.source, self._flow.target)
            deleted = not_again(selected, former, self._claims.copied_here(self._flow), aliases)
            missing = {name: line for name, line in deleted.items() if name not in target.topics}
            plan = msgspec.structs.replace(
                plan,
                create=tuple(step for step in plan.create if step.source.name not in missing),
                unanswered={**plan.unanswered, **missing},
                remarks={
                    **{name: line for name, line in plan.remarks.items() if name not in missing},
                    **halves(selected, target.topics, former, aliases),
                },
            )
        unsure = {name: self._selection.reason(name) for name, refusal in refusals.items() if refusal == "fault"}
        unsure |= {**invalid_names(source.invalid), **left_out}
        if not unsure:
            return plan
        return msgspec.structs.replace(
            plan, unanswered={**plan.unanswered, **unsure}, beyond_limits=frozenset(left_out)
        )

    def _capped(
        self, source: ClusterTopics, target: ClusterTopics, refusals: Mapping[str, Refusal | None]
    ) -> CappedTopics:
        """Return the selected topics of the source that are within the flow's limits."""
        selected = [topic for name, topic in source.topics.items() if refusals[name] is None]
        copied: dict[TopicId, int] = {}
        for (topic_id, name), ids in self._claims.former_copies(self._flow.name).items():
            there = target.topics.get(name)
            # A target topic that was deleted is created again with all partitions.
            partitions = there.partitions if there is not None and there.topic_id in ids else _ALL
            copied[topic_id] = min(copied.get(topic_id, _ALL), partitions)
        return within_limits(selected, copied, self._flow.limits)

    async def _settings(self, steps: Sequence[CreateTopic]) -> tuple[Mapping[str, Mapping[str, str]], dict[str, str]]:
        """Return two mappings by source topic: the configs of the new target topics, and the faults. If the configs
        cannot be read, the first mapping is empty, and the second contains the reason for each source topic.
        """
        if not steps or self._settings_of is None:
            return {}, {}
        try:
            return await self._settings_of([step.source.name for step in steps]), {}
        except EnvironmentFault as fault:
            # A target topic without the configs of its source topic could lose records, so it is not created.
            line = "the target topic {} has not been created yet, because its configs are not known: {}"
            return {}, {step.source.name: line.format(step.target_topic, fault) for step in steps}

    async def _create(
        self, steps: Sequence[CreateTopic], brokers: int, settings: Mapping[str, Mapping[str, str]]
    ) -> dict[str, str]:
        """Create these target topics. Return, by source topic, the reasons why the target has refused to create target
        topics.
        """
        rule = self._flow.replication_factor
        shapes = {
            step.target_topic: TopicShape(
                step.source.partitions,
                replication_factor(rule, step.source.replicas),
                settings.get(step.source.name, {}),
            )
            for step in steps
        }
        refused = await self._target.admin.create(shapes) if shapes else {}
        # The replication factor is lowered only if the target has refused it. A missing broker may be only temporarily
        # unavailable.
        smaller = {
            name: msgspec.structs.replace(shapes[name], replication_factor=factor)
            for name, reason in refused.items()
            if _TOO_FEW_BROKERS in reason
            and (factor := capped(shapes[name].replication_factor, brokers)) < shapes[name].replication_factor
        }
        if smaller:
            again = await self._target.admin.create(smaller)
            refused = {name: reason for name, reason in refused.items() if name not in smaller} | again
        return {
            step.source.name: f"the target topic {step.target_topic} cannot be created: {refused[step.target_topic]}"
            for step in steps
            if step.target_topic in refused
        }

    async def _grow(self, steps: Iterable[GrowTopic]) -> dict[str, str]:
        partitions = {step.target.name: step.source.partitions for step in steps}
        refused = await self._target.admin.grow(partitions) if partitions else {}
        return {
            step.source.name: (
                f"the target topic {step.target.name} cannot grow to {step.source.partitions} partitions: "
                f"{refused[step.target.name]}"
            )
            for step in steps
            if step.target.name in refused
        }

    def _note(self, steps: Iterable[CreateTopic | GrowTopic], settings: Mapping[str, Mapping[str, str]]) -> None:
        at = asyncio.get_running_loop().time()
        for step in steps:
            name = step.target_topic if isinstance(step, CreateTopic) else step.target.name
            self._done[name] = Done(step, settings.get(step.source.name, {}), at)

    async def _until_shown(self, target: ClusterTopics) -> ClusterTopics:
        """Wait until the target lists all changes, but no longer than `SHOWN_WITHIN_S`. Return the topics that the
        target lists."""
        deadline = asyncio.get_running_loop().time() + SHOWN_WITHIN_S
        while True:
            # Only the changed topics are read again, because the cluster may have thousands of other topics.
            target = await self._target.read_named(target, list(self._done))
            shown = all(_is_shown(name, done, target) for name, done in self._done.items())
            if shown or asyncio.get_running_loop().time() > deadline:
                return target
            await asyncio.sleep(POLL_S)

    def _facts(self, target: ClusterTopics) -> tuple[TopicCreated | ConfigsSynced | PartitionsGrown, ...]:
        """Return facts about the changes in `_done` that the target now lists, and remove these changes from
        `_done`."""
        facts: list[TopicCreated | ConfigsSynced | PartitionsGrown] = []
        for name, done in list(self._done.items()):
            if _is_shown(name, done, target):
                facts += _facts_of(done, target.topics[name].topic_id)
                del self._done[name]
        return tuple(facts)

    def _not_shown(self) -> dict[str, str]:
        now = asyncio.get_running_loop().time()
        return {
            done.step.source.name: f"the target topic {name} was {_participle(done)}, but its brokers do not show it"
            for name, done in self._done.items()
            if now - done.at > NOT_SHOWN_AFTER_S
        }

    def _give_up(self) -> None:
        now = asyncio.get_running_loop().time()
        self._done = {name: done for name, done in self._done.items() if now - done.at <= GIVEN_UP_AFTER_S}

    def _log_lines(self, lines: dict[str, str]) -> None:
        """Log a topic's fault or remark when it appears or changes. Also log when it has disappeared."""
        for topic, line in lines.items():
            if self._logged.get(topic) != line:
                log.warning("topic_needs_attention", flow=self._flow.name, topic=topic, reason=line)
        for topic in self._logged.keys() - lines.keys():
            log.info("topic_in_order", flow=self._flow.name, topic=topic)
        self._logged = lines


def next_refresh_s(flow: FlowConfig, last: Discovered | None, *, is_unrecorded: bool) -> float | None:
    """Return the time in seconds until the next refresh, or None if no further refresh is needed.

    `last` is the result of the latest refresh. `is_unrecorded` is true if a fact could not yet be written to the
    ledger.
    """
    if last is not None and last.unshown:
        return SOON_S
    if flow.refresh_ms is not None:
        return flow.refresh_ms / 1000
    return REPEAT_S if last is None or last.faults or is_unrecorded else None


class _Memory:
    """Reads the topics of a cluster. If a topic is missing from the cluster's latest response but was in the previous
    one, the result still includes the topic.

    A broker may name brokers of another cluster as its own, for example those of the target. A response of another
    cluster than before is an error, because its topics must not be copied.
    """

    def __init__(self, admin: TopicAdmin) -> None:
        self.admin = admin
        self._seen: Mapping[str, Topic] = {}
        self._cluster_id: ClusterId | None = None

    async def read(self) -> ClusterTopics:
        view = await self._described(None)
        before, self._seen = self._seen, view.topics
        return msgspec.structs.replace(view, topics={**before, **view.topics})

    async def read_named(self, view: ClusterTopics, names: Collection[str]) -> ClusterTopics:
        """Read only the topics with these names again, and return `view` with their new state. `view` is the latest
        result of `read`.

        A topic that is missing from the response remains in the result unchanged.
        """
        found = (await self._described(names)).topics
        self._seen = {**self._seen, **found}
        return msgspec.structs.replace(view, topics={**view.topics, **found})

    async def _described(self, names: Collection[str] | None) -> ClusterTopics:
        view = await self.admin.describe(names)
        if self._cluster_id not in {None, view.cluster_id}:
            await self.admin.close()  # the next request goes to the configured addresses first
            raise EnvironmentFault(f"a broker belongs to cluster {view.cluster_id}, not {self._cluster_id}")
        self._cluster_id = view.cluster_id
        return view


def _is_shown(name: str, done: Done, target: ClusterTopics) -> bool:
    return name in target.topics and target.topics[name].partitions >= done.step.source.partitions


def _participle(done: Done) -> str:
    return "created" if isinstance(done.step, CreateTopic) else f"grown to {done.step.source.partitions} partitions"


def _facts_of(done: Done, target_id: TopicId) -> Iterable[TopicCreated | ConfigsSynced | PartitionsGrown]:
    step = done.step
    if isinstance(step, GrowTopic):
        yield PartitionsGrown(step.target.name, target_id, step.source.partitions)
        return
    yield TopicCreated(step.source.name, step.source.topic_id, step.target_topic, target_id, step.source.partitions)
    if done.settings:
        changes = tuple(ConfigChange(key, None, value) for key, value in sorted(done.settings.items()))
        yield ConfigsSynced(step.source.name, step.target_topic, target_id, changes)
