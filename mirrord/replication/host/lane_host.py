"""Runs lanes: passes every signal to `lane.step`, and performs every effect that `step` returns.

This module does not decide what a lane does. An unexpected exception halts only the lane that was being processed.
"""

import asyncio
from collections.abc import Callable, Collection, Coroutine, Iterable
from functools import partial
from typing import Any

import structlog
from msgspec.structs import replace

from mirrord.kafka.client.cluster_metadata import ClusterView
from mirrord.kafka.client.partition_queries import Asks
from mirrord.kafka.client.range_reader import Stretches
from mirrord.kafka.protocol.producer_ids import ActiveProducer
from mirrord.ledger.facts.core import Entry
from mirrord.ledger.state import LaneState
from mirrord.ledger.store.append_queue import FactBindings
from mirrord.ledger.store.store import LedgerStore
from mirrord.model.errors import MirrordError
from mirrord.model.names import LaneId
from mirrord.replication.host.batch_relocation import BatchRelocation
from mirrord.replication.host.batch_verification import check
from mirrord.replication.host.cleanup_policy import Cleanup
from mirrord.replication.host.fetcher import SourceFetcher
from mirrord.replication.host.flow_control.memory_budget import MemoryBudget
from mirrord.replication.host.hanging_transactions import OpenTransactions
from mirrord.replication.host.hosted_lane import HostedLane, limits_of
from mirrord.replication.host.lane_rebuilds import LaneRebuilds
from mirrord.replication.host.mm2_takeover import Sides
from mirrord.replication.host.origin_lookup import provenance_of
from mirrord.replication.host.own_batch_scan import scan
from mirrord.replication.host.producer import TargetProducer
from mirrord.replication.host.record_policies import RecordPolicies
from mirrord.replication.host.refused_records import Refusals
from mirrord.replication.host.retried_reads import read_and_tell
from mirrord.replication.host.start_position import StartPositions
from mirrord.replication.host.superseded_lookup import Lookups
from mirrord.replication.lane.assignment import NOT_LEFT, FlowSetup, LaneAssignment, LaneReport, Parting
from mirrord.replication.lane.halt import halt
from mirrord.replication.lane.lane_report import describe, differs, progress_record
from mirrord.replication.lane.ledger_signals import concerned, ends_copying, news, over
from mirrord.replication.lane.phases import Phase
from mirrord.replication.lane.signals import (
    Append,
    AppendFailed,
    AskCheck,
    AskEnd,
    AskOrigins,
    AskProducerId,
    AskProducers,
    AskRebuild,
    AskScan,
    AskStart,
    AskVisible,
    Bound,
    CheckAnswer,
    Drain,
    Drained,
    Effect,
    EndAnswer,
    Fenced,
    FetchFrom,
    Gone,
    Halted,
    Input,
    Lost,
    Produce,
    ProducerEntry,
    ProducerIdAnswer,
    ProducersAnswer,
    RebuildAnswer,
    RebuildLater,
    SaveProgress,
    ScanAnswer,
    Start,
    StopFetch,
    TargetMoved,
    VisibleAnswer,
    Wake,
    Woken,
)
from mirrord.replication.lane.source.cleanup_policy import AskCleanup
from mirrord.replication.lane.state import Lane
from mirrord.replication.lane.step import STILL, step
from mirrord.replication.lane.target import unconfirmed_limit
from mirrord.runtime.clock import Clock
from mirrord.runtime.tasks import BackgroundTasks
from mirrord.topics.rules.ledger_start_evidence import Lately

BEAT_S = 1.0
TIMER_GRAIN_S = 0.002
GONE_KEPT_S = 60.0
"""A lane that another replicator has taken is still reported for this long, so that the supervisor learns of it."""

log = structlog.get_logger()


class LaneHost:
    """Runs the lanes of one replicator on one event loop."""

    def __init__(
        self,
        setup: FlowSetup,
        clock: Clock,
        store: LedgerStore,
        may_write: Callable[[], bool],
        source: ClusterView,
        target: ClusterView,
    ) -> None:
        self._setup, self._clock, self._store = setup, clock, store
        self._source_view, self._target_view = source, target
        self._loop = asyncio.get_running_loop()
        self._read_committed = setup.flow.isolation == "read_committed"
        self._source_asks = Asks(source, read_committed=self._read_committed)
        self._target_asks = Asks(target, read_committed=False)
        limits = (setup.request_timeout_s, setup.flow.limits.rebuild_bytes)
        self._source_stretches, self._target_stretches = Stretches(source, *limits), Stretches(target, *limits)
        self.provenance = provenance_of(setup, clock)
        sides = (self._source_asks, self._source_stretches), (self._target_asks, self._target_stretches)
        self._starts = StartPositions(setup, Sides(source, *sides[0]), Sides(target, *sides[1]), self.provenance.copies)
        self._open = OpenTransactions(self._source_asks, clock, setup.flow.transaction_alarm_ms / 1000)
        self._shaping = RecordPolicies(setup.flow)
        self._lookups = Lookups(setup, *sides, self._shaping, self.provenance.copies, self._begin)
        self.budget = budget = MemoryBudget(setup.flow.limits.in_flight_bytes, setup.flow.limits.rate_bytes_per_s)
        self._source = SourceFetcher(source, self._source_asks, budget, read_committed=self._read_committed)
        self._target = TargetProducer(target, may_write, setup.runtime.request_timeout_ms)
        self._limits = limits_of(budget.limit_bytes, setup.request_timeout_s)
        self._lanes, self._former = dict[LaneId, HostedLane](), Lately()
        self._unsaved: set[HostedLane] = set()
        self._tasks = BackgroundTasks("host_task_failed")
        self._last_saves: set[asyncio.Task[None]] = set()
        self._end_subscription = store.on_entry(self._folded)
        target.on_change.append(self._look_for_moves)
        self._beat = self._loop.call_later(BEAT_S, self._look_round)
        self._refusals = Refusals(setup, store, self._begin)
        self._perform: dict[type[Effect], Callable[[HostedLane, Any], object]] = {
            Produce: self._target.produce,
            FetchFrom: self._fetch,
            RebuildLater: self._rebuild_later,
            StopFetch: self._stop_fetch,
            Append: self._append,
            AskEnd: self._ask_end,
            AskProducers: self._ask_producers,
            AskVisible: self._ask_visible,
            AskProducerId: self._ask_producer_id,
            AskStart: self._ask_start,
            AskScan: self._scan,
            AskCheck: self._check,
            AskRebuild: self._relocate,
            **self._lookups.performs,
            AskOrigins: self.provenance.ask,
            AskCleanup: Cleanup(setup.source, setup.request_timeout_s, self._begin).ask,
            **self._refusals.performs,
            Wake: self._wake,
            SaveProgress: self._save_progress,
            Halted: self._halted,
            Lost: self._lost,
            Drained: self._drained,
            Gone: self._gone,
        }

    # lanes

    def add(self, assignment: LaneAssignment, replicator: str) -> HostedLane | None:
        """Add a lane. The caller must call `start` to start it. Return None if the lane is already hosted."""
        known = self._lanes.get(assignment.lane)
        if known is not None and known.lane.phase is not Phase.GONE:
            return None
        flow, where = self._setup.flow, (assignment.source_topic, assignment.target_topic, assignment.key.partition)
        shaped = self._shaping.concerns(assignment.source_topic)
        policy = self._shaping.fingerprint if shaped else flow.isolation
        rebuilds = LaneRebuilds(self._shaping.rebuilder(assignment.source_topic), self._source_view.alias)
        reads = (policy, self._read_committed, rebuilds, self._limits)
        lane = Lane(
            assignment.lane, *where, *reads, self._setup.mode, flow.on_loss, flow.on_reject, has_policies=shaped
        )
        hosted = HostedLane(self.tell, assignment, lane, replicator, rebuilds, is_shaped=shaped)
        lane.origins = self.provenance.origins(hosted)
        self._lanes[assignment.lane] = hosted
        self._source_view.watch(hosted.source.topic, hosted.source.topic_id)
        self._target_view.watch(hosted.target.topic, hosted.target.topic_id)
        return hosted

    def expect_expiry(self, producer_expiry_ms: int) -> None:
        """Set the target's `producer.id.expiration.ms` for all lanes. If it is unknown (0), all are unprotected."""
        if producer_expiry_ms != self._limits.producer_expiry_ms:
            self._limits = replace(self._limits, producer_expiry_ms=producer_expiry_ms)
            for hosted in self._lanes.values():
                hosted.lane.limits = self._limits

    def start(self, hosted: HostedLane) -> None:
        """Start a lane. Between `add` and `start`, the caller must read the ledger to its end, unless the lane starts
        from its previous holder's handoff checkpoint."""
        record = self._record(hosted)
        former = hosted.assignment.former_under(record.grant if record is not None else 0)
        hosted.lane.limits = self._limits
        known = (record, self._store.state.progress.get(hosted.lane.id))
        holder, left = record.times if record is not None else (0, 0), former == "left"
        barrier_s, times = self._setup.barrier_s(former, holder), self._setup.times(former, holder)
        hosted.started = True
        hosted.tell(Start(*known, hosted.replicator, barrier_s, left, hosted.assignment.word if left else None, times))

    def hosted(self, lane: LaneId) -> HostedLane | None:
        """Return a lane that is hosted here, even if it is already in the phase GONE. Return None for other lanes."""
        return self._lanes.get(lane)

    def lane_ids(self) -> list[LaneId]:
        """Return the ids of all lanes of this replicator."""
        return list(self._lanes)

    def drain(self, hosted: HostedLane) -> None:
        """Ask a lane to stop at its next safe point. When it has stopped, the future `hosted.left` is completed."""
        if hosted.lane.phase is Phase.GONE and not hosted.left.done():
            hosted.left.set_result(NOT_LEFT)
        hosted.tell(Drain())

    def remove(self, hosted: HostedLane) -> None:
        """Stop hosting a lane. From then on, answers to its in-flight batches are ignored."""
        hosted.tell(Fenced())
        self._forget(hosted)
        if self._lanes.get(hosted.lane.id) is hosted:
            del self._lanes[hosted.lane.id]
        hosted.end()

    async def until_saved(self, deadline_s: float) -> None:
        """Wait up to `deadline_s` seconds until the last progress records of drained lanes have been saved."""
        if self._last_saves:
            await asyncio.wait(self._last_saves, timeout=deadline_s)

    def reports(self) -> tuple[LaneReport, ...]:
        """Return reports on the current state of all lanes. Another thread may call this method."""
        return tuple(self._report(hosted) for hosted in list(self._lanes.values()))

    def _report(self, hosted: HostedLane) -> LaneReport:
        while True:
            try:
                report = describe(hosted.lane, hosted.tap.last_bounds(), self._clock.wall_ms())
                break
            except IndexError:  # called from another thread while the lane took a batch from a queue
                continue
        if (transaction := self._open.of(hosted.lane.id)) is not None:
            report = replace(report, open_transaction=transaction)
        if report.note:
            return report
        for view, partition in ((self._source_view, hosted.source), (self._target_view, hosted.target)):
            if view.gone(partition.topic_id):
                note = f"{view.alias} no longer has topic {partition.topic} with that id: deleted or re-created"
                return replace(report, note=note)
        note = hosted.unread_note or hosted.note(self._source_view.alias, self._target_view.alias)
        return replace(report, note=unconfirmed_limit.line(hosted.lane) or note) if note else report

    def hurry(self, lanes: Collection[LaneId]) -> None:
        """Fetch records for these lanes first, along with the lanes that this replicator itself considers urgent.
        Another thread may call this method."""
        for hosted in list(self._lanes.values()):
            hosted.tap.urgency.tell(near=hosted.lane.id in lanes)

    def fence(self) -> None:
        """Stop all lanes from writing, because the flow belongs to another daemon."""
        for hosted in list(self._lanes.values()):
            hosted.tell(Fenced())

    async def close(self) -> None:
        """End all tasks and close all connections. All lanes must have been drained or removed before this call."""
        self._beat.cancel()
        self._end_subscription()
        await self._tasks.end()
        await asyncio.gather(self.provenance.close(), self._refusals.close())
        self._source_asks.close()
        self._target_asks.close()
        self._source.close()
        self._target.close()

    # the only entry point of a lane

    def tell(self, hosted: HostedLane, signal: Input) -> None:
        """Pass a signal to a lane, and perform the effects that the lane returns."""
        hosted.touched = True
        try:
            for effect in step(hosted.lane, self._loop.time(), signal):
                self._perform[type(effect)](hosted, effect)
            if hosted.journey is not None and not hosted.journey.follow(hosted.lane, signal):
                hosted.journey = None
        except Exception:
            log.exception("lane_failed", lane=str(hosted.lane), signal=type(signal).__name__)
            self._halt(hosted)

    def _halt(self, hosted: HostedLane) -> None:
        lane = hosted.lane
        if lane.phase in STILL:
            return
        line = "an error inside mirrord; the log has its traceback"
        for effect in halt(lane, "internal", line, lane.position, lane.position):
            self._perform[type(effect)](hosted, effect)

    def _begin(self, hosted: HostedLane, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine for a lane. If it fails, the lane would wait for its answer forever, so the lane halts."""
        self._tasks.start(work, lane=str(hosted.lane.id)).add_done_callback(partial(self._ended, hosted))

    def _ended(self, hosted: HostedLane, work: asyncio.Task[None]) -> None:
        if not work.cancelled() and work.exception() is not None and self._lanes.get(hosted.lane.id) is hosted:
            self._halt(hosted)

    def _record(self, hosted: HostedLane) -> LaneState | None:
        return self._store.state.lanes.get(hosted.lane.id)

    # source

    def _fetch(self, hosted: HostedLane, effect: FetchFrom) -> None:
        hosted.rebuilds.new_chunk()
        self._source.want(hosted.tap, effect)

    def _rebuild_later(self, hosted: HostedLane, effect: RebuildLater) -> None:
        self._begin(hosted, hosted.rebuilds.later(effect, hosted))

    def _stop_fetch(self, hosted: HostedLane, _effect: StopFetch) -> None:
        hosted.rebuilds.stop()
        self._source.stop(hosted.tap)

    def _ask_start(self, hosted: HostedLane, effect: AskStart) -> None:
        names = (hosted.source.topic, hosted.target.topic)
        ledger = self._former.of(self._store.state).before(hosted.assignment.key, *names)
        find = self._starts.find(effect, hosted.lane.id, hosted.source, hosted.target, hosted.tell, ledger)
        self._begin(hosted, find)

    # target

    def _ask_end(self, hosted: HostedLane, effect: AskEnd) -> None:
        def answered(error: int, leader_epoch: int, end: int) -> None:
            hosted.tell(EndAnswer(effect.question, error, leader_epoch, end))

        self._target_asks.end(hosted.target, answered)

    def _ask_producers(self, hosted: HostedLane, effect: AskProducers) -> None:
        def answered(error: int, known: ActiveProducer | None) -> None:
            entry = None
            if known is not None:
                entry = ProducerEntry(known.last_sequence, self._clock.wall_ms() - known.last_timestamp_ms)
            hosted.tell(ProducersAnswer(effect.question, error, entry))

        self._target_asks.producer(hosted.target, effect.producer_id, answered)

    def _ask_visible(self, hosted: HostedLane, effect: AskVisible) -> None:
        def answered(error: int, high_watermark: int, log_start: int) -> None:
            hosted.tell(VisibleAnswer(effect.question, error, high_watermark, log_start))

        self._target_asks.bounds(hosted.target, effect.leader_epoch, answered)

    def _ask_producer_id(self, hosted: HostedLane, effect: AskProducerId) -> None:
        def answered(error: int, producer_id: int, producer_epoch: int) -> None:
            hosted.tell(ProducerIdAnswer(effect.question, error, producer_id, producer_epoch))

        self._target_asks.producer_id(answered)

    def _scan(self, hosted: HostedLane, effect: AskScan) -> None:
        compacts = partial(self._lookups.compacts, hosted.target.topic)
        run = partial(scan, self._target_stretches, hosted.target, effect, compacts)
        failed = partial(
            ScanAnswer, effect.question, purpose=effect.purpose, start=effect.start, end=effect.end, own=()
        )
        self._begin(hosted, read_and_tell(hosted, effect.question, run, failed))

    def _check(self, hosted: HostedLane, effect: AskCheck) -> None:
        sides = (self._source_stretches, hosted.source), (self._target_stretches, hosted.target)
        record, changing = hosted.record, self._shaping.changing(hosted.source.topic)
        run = partial(check, *sides, (self._source_asks, self._target_asks), record, effect, changing)
        failed = partial(CheckAnswer, effect.question, first=effect.first, last=effect.last, outcome="unverifiable")
        self._begin(hosted, read_and_tell(hosted, effect.question, run, failed))

    def _relocate(self, hosted: HostedLane, effect: AskRebuild) -> None:
        record = hosted.record
        logs, asks = (self._source_stretches, self._target_stretches), (self._source_asks, self._target_asks)
        copies = self.provenance.copies if hosted.lane.origins is not None else None
        search = BatchRelocation(*logs, hosted.source, hosted.target, asks, copies, read_committed=self._read_committed)
        source_compacts = partial(self._lookups.source_compacts, hosted.source.topic)
        compacts = partial(self._lookups.compacts, hosted.target.topic)
        policies = hosted.lane.has_policies
        run = partial(search.run, record, effect, source_compacts, compacts, is_filtered=policies)
        if policies and self._shaping.changing(hosted.source.topic) is not None:
            run = partial(search.leave_open, record, effect, compacts)
        failed = partial(RebuildAnswer, effect.question, own=(), located=None)
        self._begin(hosted, read_and_tell(hosted, effect.question, run, failed))

    def _look_for_moves(self) -> None:
        for hosted in list(self._lanes.values()):
            leader = self._target_view.leader(hosted.target)
            if leader is not None and leader.epoch > hosted.lane.log.end_epoch >= 0:
                hosted.tell(TargetMoved(leader.epoch))

    def _wake(self, hosted: HostedLane, effect: Wake) -> None:
        if effect.refresh:
            self._target_view.refresh()
        # A uvloop timer may fire half a millisecond early, and a lane that is woken too early is not woken again.
        self._loop.call_at(effect.at + TIMER_GRAIN_S, hosted.tell, Woken(effect.question))

    # ledger

    def _append(self, hosted: HostedLane, effect: Append) -> None:
        async def append() -> None:
            try:
                bound = await self._store.append(self._setup.lease_epoch, effect.facts)
            except MirrordError as error:
                hosted.ledger_trouble = str(error)
                hosted.tell(AppendFailed(effect.tag, self._record(hosted)))
            else:
                hosted.ledger_trouble = ""
                hosted.tell(Bound(effect.tag, bound, self._record(hosted)))

        self._begin(hosted, append())

    def _folded(self, _offset: int, entry: Entry, bound: FactBindings) -> None:
        for fact in (fact for fact, binds in zip(entry.facts, bound, strict=True) if binds):
            if (hosted := self._lanes.get(concerned(fact))) is not None:
                hosted.hear(news(fact, hosted.replicator))
            for each in [*self._lanes.values()] if ends_copying(fact) else ():
                each.hear(over(self._store.state.recoveries, each.assignment.source_topic))

    def _save_progress(self, hosted: HostedLane, _effect: SaveProgress) -> None:
        if not self._unsaved:
            self._loop.call_soon(self._save_unsaved)
        self._unsaved.add(hosted)

    def _save_unsaved(self) -> None:
        hosted, self._unsaved = self._unsaved, set()
        self._tasks.start(self._save(hosted))

    def _look_round(self) -> None:
        """Save progress, look for source transactions that do not end, and ask for log ends that no fetch returns."""
        self._beat = self._loop.call_later(BEAT_S, self._look_round)
        self._open.look(self._lanes.values())
        self._former.forget()
        moved = [hosted for hosted in self._lanes.values() if hosted.touched and self._has_moved(hosted)]
        if moved:
            self._tasks.start(self._save(moved))
        for hosted in self._lanes.values():
            # While a lane is copying, only the answers to its own fetches count. Other answers may be older.
            if hosted.started and (hosted.lane.phase is not Phase.COPYING or hosted.lane.origin.doubt is not None):
                self._source.ask_end(hosted.tap)

    def _has_moved(self, hosted: HostedLane) -> bool:
        moved = differs(hosted.lane, self._setup.lease_epoch, hosted.saved)
        hosted.touched = moved is not False
        return bool(moved)

    async def _save(self, lanes: Iterable[HostedLane]) -> None:
        at_ms = self._clock.wall_ms()
        records = {
            hosted: known
            for hosted in lanes
            if hosted.lane.grant > 0 and hosted.lane.phase is not Phase.GONE
            if (known := progress_record(hosted.lane, self._setup.lease_epoch, at_ms)) is not None
        }
        # Without this check, a process without a lease could, after `mirrord rebuild`, save a progress record that
        # contradicts the rebuilt ledger.
        if not records or not self._target.may_write():
            return
        try:
            await self._store.save(*records.values())
        except MirrordError as error:
            log.debug("progress_not_saved", lanes=len(records), error=str(error))  # retried every second
        else:
            for hosted, record in records.items():
                hosted.saved = record
                hosted.touched = True

    # how a lane ends

    def _halted(self, hosted: HostedLane, effect: Halted) -> None:
        report = partial(log.warning, "lane_rebuilds_map") if effect.rebuilds else partial(log.error, "lane_halted")
        report(lane=hosted.lane.id, line=effect.line)

    def _lost(self, hosted: HostedLane, effect: Lost) -> None:
        log.error("records_lost", lane=hosted.lane.id, line=effect.line)

    def _drained(self, hosted: HostedLane, effect: Drained) -> None:
        word = progress_record(hosted.lane, self._setup.lease_epoch, self._clock.wall_ms()) if effect.clean else None
        if not hosted.left.done():
            hosted.left.set_result(NOT_LEFT if word is None else Parting(clean=True, word=word))
        last = self._tasks.start(self._save([hosted]))
        self._last_saves.add(last)
        last.add_done_callback(self._last_saves.discard)

    def _gone(self, hosted: HostedLane, effect: Gone) -> None:
        log.info("lane_gone", lane=hosted.lane.id, why=effect.why)
        self._forget(hosted)
        if not hosted.left.done():
            hosted.left.set_result(NOT_LEFT)
        self._loop.call_later(GONE_KEPT_S, self.remove, hosted)

    def _forget(self, hosted: HostedLane) -> None:
        if hosted.forgotten:
            return
        hosted.forgotten = True
        self._source.stop(hosted.tap)
        self._target.forget(hosted)
        self._source_view.unwatch(hosted.source.topic_id)
        self._target_view.unwatch(hosted.target.topic_id)
