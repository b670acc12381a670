"""What the holder of the lane can know about the records in a compacted target."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from mirrord.ledger.facts.core import LaneHalted, Progress
from mirrord.ledger.state import LaneState
from mirrord.model.runs import Runs
from mirrord.replication.lane.source.declared_runs import mended_until
from mirrord.replication.lane.state import ResumePosition
from mirrord.replication.lane.target import position_rewind
from tests.sim import toy
from tests.sim.host import LANE, Host, Request
from tests.sim.stored import Copy, Stored, ordinal_of
from tests.sim.target import Broker, FakeTarget, cleaned_from
from tests.sim.unknown_epochs import UnknownEpochs

NEVER = 1 << 62


class Lookup(NamedTuple):
    """What a holder saw when it looked a record up."""

    holder: str
    foreign: int
    """Number of other writers' records that were there."""
    epoch: int
    """The target's leader epoch at that time."""
    unseen: frozenset[int] = frozenset()
    """Those of these records that were not committed."""


class Limit(NamedTuple):
    """Up to which of other writers' records a holder could see them when it appended a record."""

    foreign: int
    unseen: frozenset[int] = frozenset()
    """Those of them that it could not see, because they were not committed."""


_UNLIMITED = Limit(NEVER)


class Plan(NamedTuple):
    """What a holder found in the ledger when it began: records that are still to be copied again."""

    until: int
    """The end, as an ordinal."""
    lookups: dict[int, Lookup]
    """Number of a record → the last lookup of it before the holder began."""
    runs: Runs | None = None
    """The source offsets of the ordinals, according to the ledger."""

    def has(self, batch: Any) -> bool:
        """Whether a batch is part of the plan. The holder may have given the ordinals to other records."""
        is_same = self.runs is None or self.runs.offset_of(batch.first) == batch.offset
        return batch.first < self.until and is_same


class Presumed(NamedTuple):
    """What the log showed when a lookup took a record for appended and then removed."""

    batches: frozenset[tuple[int, int]]
    """Base offset and leader epoch of the batches from the last empty offset on: a log that has one of these, or had it
    before its cleaner removed it, still begins with the offsets at which the record may have been."""
    foreign: int
    """Number of the foreign record that was the newest of its key."""


class Known:
    """Records by their numbers; foreign records are counted."""

    is_behind_returned = False
    """Whether the target's log had newer records after batches that an election had brought back, when the map was to
    be rebuilt because of them."""

    def __init__(self) -> None:
        self.taken: dict[int, int] = {}
        """Number of an acknowledged record → number of other writers' records in the target at that time."""
        self.takers: dict[int, tuple[str, int]] = {}
        """Number → the holder that was first answered, and the ordinal."""
        self.unknowing: dict[int, int] = {}
        """Number of a record that was last appended by a holder that could not know it → the same count then."""
        self.below_position: dict[str, set[int]] = {}
        """Holder → the records below the resume position with which it began."""
        self.replanned: dict[str, set[int]] = {}
        """Holder → those of these records that the target lacked, and that a plan had given other ordinals."""
        self.plans: dict[str, Plan] = {}
        """Holder → the plan with which it began."""
        self.looked_up: dict[int, list[Lookup]] = {}
        """Number of a record → its lookups."""
        self.lookups = 0
        """How often holders have looked records up."""
        self.hidden: dict[int, Lookup] = {}
        """Number of a record → its last lookup, if that was in a log that hid the record (`FakeTarget.hidden`), and the
        record was not appended since."""
        self.overlooked: dict[str, set[int]] = {}
        """Holder → records that the cleaner had removed from a log that the holder read when it resumed, and that the
        holder did not look up. Only for holders that have looked up other records."""
        self.unplaced: int | None = None
        """The first ordinal of the last rebuild, if the source had none of the target's records from it on."""
        self.left_out: dict[int, int] = {}
        """Number of a record that a plan left out, and that was not appended since → number of other writers' records
        that the lookup could see."""
        self.appended: dict[int, int] = {}
        """Number → number of other writers' records in the target when it was appended last."""
        self.late: set[int] = set()
        """Numbers of records that were appended last by bytes that everyone had given up."""
        self.is_hidden = False
        """Whether late bytes followed the lane's last batch, so that the log does not show where the lane was."""
        self.first_appended: dict[int, int] = {}
        """The same when it was appended for the first time."""
        self.presumed: set[int] = set()
        """Numbers of records that a lookup rightly took for appended and then removed (`comparing.presumed`)."""
        self.presumed_at: dict[int, Presumed] = {}
        """The same for those that a foreign record superseded, and that were not appended since."""
        self.ordinals: dict[int, int] = {}
        """Number → the ordinal under which it was appended last."""
        self.limits: dict[int, Limit] = {}
        """Number → the same for the holder that appended it last."""
        self.theirs_seen: set[int] = set()  # numbers of other writers' records that lookups have seen
        self.deleted: dict[str, set[Copy]] = {}
        """Holder → copies that retention has deleted from the target, of which the holder cannot know."""
        self.epochs = UnknownEpochs()
        self.returned: list[LaneHalted] = []
        """The halts at which an election had brought back records whose ordinals had been used again."""
        self.dropped: set[int] = set()
        """Numbers of copied records that count as not copied, because the filter now drops one of them or a record
        before them (decision 95)."""
        self.after_drop: set[int] = set()
        """Numbers of records whose last append followed from that."""

    def take_over(
        self, holder: str, begun: Progress | None, lane: LaneState | None, offset_of: Mapping[int, int]
    ) -> None:
        """Another holder begins with this progress record. `offset_of` are the source offsets of records by number."""
        reached = position_rewind.valid_position(begun, lane)[1] if begun is not None else 0
        planned_until = mended_until(lane, reached) if lane is not None else -1
        self.begin(holder, reached, planned_until, _lacking(lane) if lane is not None else ())
        if lane is not None:
            self._forget_rebuilt(holder, reached, lane, offset_of)
            self.plans[holder] = self.plans[holder]._replace(runs=lane.source_runs.copy())

    def begin(self, holder: str, reached: int, planned_until: int, lacking: Sequence[tuple[int, int]] = ()) -> None:
        """Another holder begins with a resume position, and with what is still to be copied again up to an ordinal.
        `lacking` are ordinals (first, last) that the target lacks according to the ledger.

        If the former holder could not know a record below this position, the position covers only the last append of
        the record. That append may have been found in the log, without an acknowledgement (`took`). If the target lacks
        the ordinal of that append as well, nothing shows that it ever had the record."""
        former = next(reversed(self.below_position), "")
        below = {number for number, (_, ordinal) in self.takers.items() if ordinal < reached}
        lost = {number for number in below if lacking and _is_within(lacking, self.takers[number][1])}
        for number in lost:
            again = self.ordinals.get(number, NEVER)
            if not self.knows(former, number) and (again >= reached or _is_within(lacking, again)):
                below.remove(number)
        self.replanned[holder] = {number for number in below & lost if self.ordinals.get(number, NEVER) >= reached}
        for number in below & self.unknowing.keys():
            if not self.knows(former, number):
                self.taken[number] = self.unknowing[number]
        self.plans[holder] = Plan(planned_until, {number: each[-1] for number, each in self.looked_up.items()})
        self.below_position[holder] = below

    def _forget_rebuilt(self, holder: str, reached: int, lane: LaneState, offset_of: Mapping[int, int]) -> None:
        """A rebuilt map does not show which of its records had been copied before they were lost. If a record got an
        ordinal above the position of the next holder, nothing shows that holder that it was ever in the target
        (decision 95)."""
        first = min((each.first for each in lane.rebuilds), default=NEVER)
        below = self.below_position[holder]
        for number in list(below):
            ordinal = self.takers[number][1]
            is_open = any(hole.first <= ordinal <= hole.last for hole in lane.holes if hole.is_open)
            is_moved = is_open or lane.source_runs.offset_of(ordinal) != offset_of.get(number)
            if ordinal >= first and is_moved and self.ordinals.get(number, -1) >= reached:
                below.remove(number)

    def knows(self, holder: str, number: int) -> bool:
        """Return whether the holder can know that the record was in the target: the record was first acknowledged to
        it, or is below the resume position with which it began. A batch may arrive after the next holder began. What
        the next one knows does not count then."""
        taker = self.takers.get(number, ("", 0))[0]
        return taker == holder or number in self.below_position.get(holder, ())

    def look_up(
        self,
        holder: str,
        asked: Collection[int],
        committed: Sequence[Stored],
        epoch: int,
        hidden: Collection[int] = (),
        between: Collection[int] = (),
        unseen: frozenset[int] = frozenset(),
    ) -> None:
        """A holder asks whether the target has newer records than these. It reads up to the high watermark. The log
        hides the `hidden` records. The holder takes the records `between` for never appended, unless the log has newer
        records after the place at which they may have been. If a former holder had planned to copy such a record again,
        only what that one saw counts: the ledger does not show that the record was appended again (decision 95)."""
        self.lookups += 1
        self.epochs.look_up(holder, asked, committed)
        numbers = [-number for stored in committed for number in stored.numbers if number < 0]
        lookup = Lookup(holder, max(numbers, default=0), epoch, unseen)
        self.theirs_seen.update(numbers)
        replanned = self.replanned.get(holder, set()).intersection(between)
        self.overlooked.get(holder, set()).difference_update(asked)
        for number in asked:
            before = self.looked_up.setdefault(number, [])
            if before and number in replanned:
                seen = min(lookup.foreign, before[-1].foreign)
                before.append(lookup._replace(foreign=seen, unseen=unseen | before[-1].unseen))
            else:
                before.append(lookup)
            self.hidden.pop(number, None)
            if number in hidden:
                self.hidden[number] = before[-1]

    def presume(self, numbers: Iterable[int], leader: Broker, end: int, key: Callable[[int], int]) -> None:
        """A lookup in this leader's log took records for appended and then removed. `end` is the end of the log that
        the holder has read, which may be the log of an earlier leader."""
        there = {at for stored in leader.log for at in range(stored.base, stored.end)}
        last = max({*range(min(end, leader.end))} - there, default=NEVER)
        batches = frozenset((stored.base, stored.leader_epoch) for stored in leader.whole if stored.end > last)
        newest = {key(number): number for stored in leader.log for number in stored.numbers if number}
        for number in numbers:
            if (foreign := -newest.get(key(number), 0)) > 0:
                self.presumed_at[number] = Presumed(batches, foreign)

    def leave_out(self, numbers: Iterable[int | None]) -> None:
        """A plan leaves these records out, because the last lookup found newer ones."""
        for number in numbers:
            if number is not None and number in self.looked_up:
                self.left_out[number] = self.looked_up[number][-1].foreign

    def arrived(self, request: Request, foreign: int, lost: Mapping[int, int]) -> set[int]:
        """A batch was appended, or had been before. `lost`: what elections have removed (`FakeTarget.lost`). Return the
        records that the log had hidden from the lookup because of which they were appended.

        If an election has removed records, a log may also hide a record from a holder that cannot know it: the holder
        takes the empty offset of the record for that of an earlier record, and does not look it up (decision 95)."""
        hidden: set[int] = set()
        for at, (_, number) in enumerate(toy.records(request.data)):
            self.appended[number], self.ordinals[number] = foreign, request.batch.first + at
            self.left_out.pop(number, None)
            self._append_dropped(number)
            self.presumed_at.pop(number, None)
            self.late.discard(number)
            self.first_appended.setdefault(number, foreign)
            holder, lookup = self._judged_by(request, number, lost.get(number, 0))
            # Between the lookup and the append others may write, and brokers have no conditional append.
            self.limits[number] = _UNLIMITED if lookup is None else Limit(lookup.foreign, lookup.unseen)
            if lookup is not None and self.hidden.pop(number, None) is lookup:
                hidden.add(number)
            if not lost and not self.is_hidden:
                continue
            self.unknowing.pop(number, None)
            if not self.knows(holder, number):
                self.unknowing[number] = foreign
                if lost and number in self.overlooked.get(request.host.name, ()):
                    hidden.add(number)
        return hidden

    def _judged_by(self, request: Request, number: int, lost_in: int) -> tuple[str, Lookup | None]:
        """Return the holder whose knowledge counts for a record, and its lookup. `lost_in` is the leader epoch that
        began without the record.

        What a former holder has planned is appended without another lookup, so what that holder knew counts. A lookup
        from before the loss shows nothing about the record: it was in the log then."""
        name, plan = request.host.name, self.plans.get(request.host.name)
        planned = plan.lookups.get(number) if plan is not None and plan.has(request.batch) else None
        lookup = next((each for each in reversed(self.looked_up.get(number, ())) if each.holder == name), planned)
        if lookup is None or lookup.epoch < lost_in:
            return name, None
        return lookup.holder, lookup

    def came_late(self, data: bytes, foreign: int) -> set[int]:
        """Bytes that everyone had given up were appended: no lookup could keep these records out. Returns them."""
        numbers = {number for _, number in toy.records(data)}
        for number in numbers:
            self.appended[number], self.limits[number] = foreign, Limit(0)
            self.late.add(number)
            self.first_appended.setdefault(number, foreign)
            self.left_out.pop(number, None)
            self._append_dropped(number)
            self.presumed_at.pop(number, None)
        return numbers

    def drop_again(self, numbers: Iterable[int]) -> None:
        """A lookup calls the filter again for records that the lane had copied, and the filter now drops one."""
        self.dropped.update(numbers)

    def _append_dropped(self, number: int) -> None:
        if number in self.dropped:
            self.dropped.remove(number)
            self.after_drop.add(number)
        else:
            self.after_drop.discard(number)

    def is_over(self, number: int, theirs: Iterable[int]) -> bool:
        """One of these foreign records was known to be newer, and could be seen, when this record was appended."""
        known = max(self.taken[number], self.unknowing.get(number, 0))
        limit = self.limits.get(number, _UNLIMITED)
        return any(known < each <= limit.foreign and each not in limit.unseen for each in theirs)

    def resumed(self, host: Host, begun: ResumePosition) -> None:
        """A holder has found out where the target log ends, and continues there. `begun` is its former resume
        position."""
        target, end = host.world.target, host.lane.log.end
        if host.lane.log.end_epoch != target.epoch:
            return
        leader = target.brokers[target.leader]
        there = [each for stored in leader.whole if stored.end <= end for each in stored.written]
        foreign = -min(there, default=0)
        self.epochs.resumed(host.name, there)
        asked = {number for number, each in self.looked_up.items() if any(one.holder == host.name for one in each)}
        if asked:
            self.overlooked.setdefault(host.name, set()).update(cleaned_from(leader) - asked)
        former, holes = target.unknown.now, host.world.truth.lanes[LANE].holes
        planned = {
            (stored.id, number)
            for stored in leader.deleted
            for ordinal, number in enumerate(stored.numbers, stored.ordinal)
            if number and any(hole.first <= ordinal <= hole.last for hole in holes)
        }
        self.deleted[host.name] = _unseen(host, begun, leader) | (former & planned)
        target.unknown.resumed(host.lane.grant, self.deleted[host.name])
        acked, below = host.lane.acked, self.below_position.get(host.name, set())
        own = [
            each
            for stored in leader.log
            if stored.end <= end and 0 <= stored.ordinal < acked and not below.issuperset(stored.numbers)
            for each in enumerate(stored.numbers, stored.ordinal)
            if each[1] > 0 and each[0] < acked
        ]
        self.found(host.name, own, max(foreign, 0))

    def found(self, holder: str, standing: Iterable[tuple[int, int]], foreign: int) -> None:
        """A holder has read the log, and continues after these records (ordinal, number). `foreign`: as in `taken`."""
        below, takers = self.below_position.get(holder, ()), self.takers
        for ordinal, number in standing:
            if number not in below and (number not in takers or takers[number][0] != holder):
                self.taken[number] = max(foreign, self.unknowing.get(number, 0))
                self.takers[number] = (holder, ordinal)

    def took(self, requests: list[Request], target: FakeTarget) -> None:
        """Batches were acknowledged, and the lane counts them."""
        for request in requests:
            if request.batch.first >= request.host.lane.acked:
                continue
            self.epochs.took(request, target)
            for at, (_, number) in enumerate(toy.records(request.data)):
                # A holder that cannot know of the first time counts from its own.
                if not self.knows(request.host.name, number):
                    self.taken[number] = target.foreign_numbers
                    self.takers[number] = (request.host.name, request.batch.first + at)
                # Acknowledged again, it follows whatever no lookup could see when it was appended.
                self.taken[number] = max(self.taken[number], self.appended.get(number, 0))


def _unseen(host: Host, begun: ResumePosition, leader: Broker) -> set[Copy]:
    """Return the copies that retention has deleted, and of which nothing shows a holder that they were there: neither
    its resume position, nor a later record of the lane, nor what the leader remembers of the producer. If their
    ordinals are above a resume position and their offsets below it, these show it only if the holder has found out that
    the log is no longer the one in which the position was saved. It then counts them as appended."""
    lane, entry = host.lane, host.lane.log.entry
    lowest = host.world.past.ordinal
    reached = lane.acked if entry is None else max(lane.acked, ordinal_of(entry.last_sequence, lowest) + 1)
    holes = host.world.truth.lanes[LANE].holes

    def known_below(stored: Stored) -> int:
        behind = stored.ordinal + stored.count
        is_void = any(hole.first < behind and stored.ordinal <= hole.last for hole in holes)
        is_found = behind <= lane.acked and not is_void
        return begun.ordinal if stored.end <= begun.target_offset and not is_found else reached

    own = [stored for stored in leader.deleted if stored.producer >= 0]
    unseen = (stored for stored in own if stored.ordinal + stored.count > known_below(stored))
    return {copy for stored in unseen for copy in stored.copies()}


def _lacking(lane: LaneState) -> list[tuple[int, int]]:
    """Return the ordinals of holes whose records are to be copied again, and displaced ordinals."""
    holes = (each for each in lane.holes if not each.is_open)
    return [(each.first, each.last) for each in (*holes, *lane.displaced)]


def _is_within(ranges: Iterable[tuple[int, int]], ordinal: int) -> bool:
    return any(first <= ordinal <= last for first, last in ranges)
