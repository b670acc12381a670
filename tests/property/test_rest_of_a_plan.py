"""However holes, rebuilt maps and logs that go back follow each other, each record is copied once (`declared_runs`).
Records of which a compacted copy has newer ones are not copied again."""

from collections import deque

from hypothesis import example, given
from hypothesis import strategies as st

from mirrord.ledger.facts.core import MapRebuilt, SourceRun, Verdict
from mirrord.model.intervals import ranges
from mirrord.model.runs import Run
from mirrord.replication.lane.source import source_epochs, truncation
from mirrord.replication.lane.source.copied_pieces import mapped
from mirrord.replication.lane.source.declared_runs import continues_at, jumps, rest
from mirrord.replication.lane.source.recorded_epochs import carried
from mirrord.replication.lane.state import ResumePosition
from mirrord.replication.lane.target import hole_repair, missing_ordinals
from tests.unit.replication.lane.test_rebuilding import LANE
from tests.unit.replication.lane.test_second_faults import opened, progress_at

small = st.integers(1, 6)
OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("copy"), small, small),
        st.tuples(st.just("skip"), small, small),
        st.tuples(st.just("hole"), st.integers(1, 3), st.integers(1, 3)),
        st.tuples(st.just("rebuild"), small, small),
        st.tuples(st.just("back"), st.integers(1, 30), small),
        st.tuples(st.just("back_with_hole"), st.integers(1, 15), small),
        st.tuples(st.just("lose"), st.integers(1, 15), small),
        st.tuples(st.just("supersede"), st.integers(1, 15), small),
    ),
    max_size=25,
)


class Copying:
    """A lane's ledger, its target log, and the source offset that it copies next."""

    def __init__(self) -> None:
        self.play = opened(SourceRun(LANE, 1, (Run(0, 0),)))
        self.play.take(progress_at(0))
        self.log: dict[int, int] = {}
        self.twice: set[int] = set()
        """Ordinals whose records the target also has under lower ordinals, as a rebuilt map found."""
        self.skipped: set[int] = set()
        self.gone: set[int] = set()
        """Ordinals whose records the source has lost."""
        self.superseded: dict[int, int] = {}
        """The source offsets of which others have newer records, right before these ordinals in the target log."""
        self.optional: set[int] = set()
        """The source offsets that were superseded by records that the target lost since: they may be left out."""
        self.next = self.position = self.end = self.resumed = self.epoch = 0
        self.plan: deque[Run] = deque()

    def fold(self, *runs: Run) -> None:
        self.play.fold(SourceRun(LANE, self.play.record.grant, runs))

    def copy(self, count: int, _: int) -> None:
        for _ in range(count):
            if not self.plan and self.position in self.skipped:
                while self.position in self.skipped:
                    self.position += 1
                self.fold(Run(self.next, self.position))
            assert self.play.record.source_runs.offset_of(self.next) == self.position
            assert self.position not in self.superseded
            self.log[self.next] = self.position
            self.next, self.position = self.next + 1, self.position + 1
            self.end = max(self.end, self.position)
            if self.plan and self.plan[0].ordinal == self.next:
                self.position = self.plan.popleft().offset

    def skip(self, count: int, _: int) -> None:
        if not self.plan and self.position >= self.end:
            self.skipped.update(range(self.position, self.position + count))

    def is_held_below(self, ordinal: int) -> bool:
        """Return whether a lower ordinal in the log has the same record."""
        return any(offset == self.log[ordinal] for at, offset in self.log.items() if at < ordinal)

    def mend(self, first: int, last: int, ordinal: int) -> None:
        """The log lacks the ordinals first..last. The lane resumes at an ordinal after them, and copies them again."""
        for at in range(first, last + 1):
            del self.log[at]
        self.twice = {at for at in self.twice & self.log.keys() if self.is_held_below(at)}
        lane, record = self.play.lane, self.play.record
        lane.record, lane.resume_ordinal, lane.log.holes = record, ordinal, [(first, last)]
        lane.position = continues_at(record, ordinal) or 0
        self.play.fold(*hole_repair.repair(lane, record))
        self.resume(ordinal)

    def hole(self, count: int, behind: int) -> None:
        """The target refuses some of the last records that were sent in this round."""
        first = self.next - behind - count
        if first < max(self.resumed, 1):
            return
        self.mend(first, first + count - 1, self.next)

    def rebuild(self, count: int, by: int) -> None:
        """The last records of the log are those of offsets that are lower by some, so that some are doubled."""
        first, known = self.next - count, self.copied
        if self.plan or first <= 0 or any(at not in known for at in range(first - 1, self.next)):
            return
        begin, omitted = known[first] - by, self.skipped | self.superseded.keys() | self.optional
        offsets = [each for each in range(max(begin, 0), self.end) if each not in omitted][:count]
        if len(offsets) < count:
            return
        below = {offset for ordinal, offset in known.items() if ordinal < first}
        held = below | set(offsets)
        missing = sorted(set(range(self.end)) - self.skipped - held)
        if missing and omitted != self.skipped:
            return  # a lane halts if it is open whether what is missing in a compacted copy was superseded
        self.log.update(zip(range(first, self.next), offsets, strict=True))
        self.twice = {at for at in self.twice if at < first}
        self.twice.update(ordinal for ordinal in range(first, self.next) if self.log[ordinal] in below)
        runs = [Run(first + at, offset) for at, offset in enumerate([*offsets, *missing])]
        until = self.next + len(missing)
        self.fold(*runs, Run(until, self.end))
        self.play.fold(MapRebuilt(LANE, self.play.record.grant, first, self.next - 1, until))
        self.resume(self.next)

    @property
    def copied(self) -> dict[int, int]:
        """The records in the target log that the source still has."""
        return {ordinal: offset for ordinal, offset in self.log.items() if ordinal not in self.gone}

    def shortened(self, count: int) -> int:
        """The target log loses its last ordinals. Return the first one that it lacks then."""
        ordinal = max(self.next - count, 0)
        while ordinal > 0 and ordinal - 1 not in self.log:
            ordinal -= 1
        self.log = {at: offset for at, offset in self.log.items() if at < ordinal}
        self.twice = {at for at in self.twice if at < ordinal}
        self.gone = {at for at in self.gone if at < ordinal}
        self.optional.update(offset for offset, at in self.superseded.items() if at > ordinal)
        self.superseded = {offset: at for offset, at in self.superseded.items() if at <= ordinal}
        return ordinal

    def back(self, count: int, _: int) -> None:
        self.resume(self.shortened(count))

    def back_with_hole(self, count: int, behind: int) -> None:
        """The log goes back, and lacks records in the middle too."""
        ordinal = self.shortened(count)
        first = ordinal - 1 - behind
        last = first + behind // 2
        if first < 1 or any(at not in self.log for at in range(first, last + 1)):
            self.resume(ordinal)
            return
        self.mend(first, last, ordinal)

    def supersede(self, count: int, which: int) -> None:
        """The log goes back, and others have newer values of every third record that it lost."""
        known, ordinal, lane, record = self.next, self.shortened(count), self.play.lane, self.play.record
        known = max(known - which // 3, ordinal)  # the holder may not know of the last acknowledgements
        lane.record, lane.resume_ordinal, lane.log.holes, lane.acknowledged = record, ordinal, [], ()
        lane.acked, lane.resume_position = known, ResumePosition(known, known, 1)
        lost = missing_ordinals.lost_ordinals(lane, ordinal)
        below = set(self.copied.values())
        left_out = {
            begin + at: offset + at
            for first, last in lost
            for begin, offset, length in mapped(record, first, last)
            for at in range(length)
            if (offset + at + which) % 3 == 0 and offset + at not in below
        }
        if left_out:
            kept = ranges(at for first, last in lost for at in range(first, last + 1) if at not in left_out)
            lane.log.lost_ordinals = lost
            missing_ordinals.go_back(lane, tuple((start, end - 1) for start, end in kept))
            lane.acked, lane.resume_position = ordinal, ResumePosition(ordinal, ordinal, 2)
            lane.position = continues_at(record, ordinal) or 0
            self.play.fold(*hole_repair.repair(lane, record))
            lane.log.copied_again = None
            self.superseded.update(dict.fromkeys(left_out.values(), ordinal))
            self.optional.difference_update(left_out.values())
        self.resume(ordinal)

    def lose(self, count: int, by_the_lane: int) -> None:
        """The source loses the last records. The lane finds that out, or a former holder did."""
        start, lane = max(self.end - count, 0), self.play.lane
        end = max(self.position, self.plan[-1].offset if self.plan else 0)
        if start >= end:
            return
        lane.record, lane.next_ordinal, lane.position, lane.plan = self.play.record, self.next, self.position, self.plan
        runs, pieces = truncation.left_before(lane, start) if self.plan else ([Run(self.next, start)], [])
        lane.plan = deque()
        self.epoch += 1
        epochs = (*carried(self.play.record.epochs, pieces), (runs[-1].ordinal, self.epoch))
        # The lane may have skipped the first records that the source has lost (see `truncation._gone_from`).
        first = min((offset for offset in self.log.values() if offset >= start), default=end)
        lost = (Verdict(first, end, "truncated"),) if first < end else ()
        self.play.fold(SourceRun(LANE, self.play.record.grant, tuple(runs), lost, epochs))
        self.gone.update(ordinal for ordinal, offset in self.log.items() if offset >= start)
        self.end = start
        self.skipped = {offset for offset in self.skipped if offset < start}
        self.superseded = {offset: at for offset, at in self.superseded.items() if offset < start}
        self.optional = {offset for offset in self.optional if offset < start}
        if self.plan or by_the_lane % 2:
            self.resume(self.next)
        else:
            self.position, self.resumed = start, self.next

    def resume(self, ordinal: int) -> None:
        record, lane = self.play.record, self.play.lane
        left, position = rest(record, ordinal), continues_at(record, ordinal)
        assert position is not None
        runs = [Run(ordinal, position), *jumps(record, ordinal, left)]
        lane.record, lane.resume_ordinal, lane.epoch, lane.history.epochs_again = record, ordinal, -1, ()
        is_ahead = source_epochs.is_revoked_ahead(lane, record) or any(hole.first >= ordinal for hole in record.holes)
        if is_ahead or (left is not None and left.differs):
            runs = left.runs if left is not None else runs[:1]
            epochs = source_epochs.epochs_again(lane, left.pieces if left is not None and len(runs) > 1 else [])
            facts = hole_repair.kept_plan(lane, runs)
            self.play.fold(*facts, SourceRun(LANE, record.grant, tuple(runs), (), epochs))
        self.next = self.resumed = ordinal
        self.position, self.plan = runs[0].offset, deque(runs[1:])

    def check(self) -> None:
        while self.plan or self.position < self.end:
            self.copy(1, 1)
        once = [offset for ordinal, offset in self.copied.items() if ordinal not in self.twice]
        assert len(once) == len(set(once))
        assert set(once) - self.optional == set(range(self.end)) - self.skipped - self.optional - self.superseded.keys()


@given(OPERATIONS)
@example([("copy", 4, 1), ("supersede", 2, 6), ("copy", 5, 1), ("hole", 3, 2), ("lose", 2, 1)])
@example(
    [
        ("copy", 6, 1),
        ("supersede", 6, 3),
        ("copy", 6, 1),
        ("hole", 2, 1),
        ("copy", 4, 1),
        ("hole", 1, 1),
        ("lose", 1, 1),
    ]
)
@example([*[("copy", 1, 1)] * 4, ("rebuild", 2, 1), ("back_with_hole", 1, 1)])  # the log loses one of two copies
@example([("copy", 5, 1), ("lose", 1, 1), ("copy", 3, 1), ("back_with_hole", 3, 1), ("supersede", 1, 3)])
@example([("copy", 2, 1), ("skip", 2, 1), ("copy", 1, 1), ("lose", 3, 1), ("copy", 2, 1), ("back", 3, 1)])
def test_each_record_is_copied_once(operations: list[tuple[str, int, int]]) -> None:
    copying = Copying()
    for name, count, more in operations:
        getattr(copying, name)(count, more)
    copying.check()
