"""However holes, rebuilt maps and logs that go back follow each other, each record is copied once (`declared_runs`)."""

from collections import deque

from hypothesis import given
from hypothesis import strategies as st

from mirrord.ledger.facts.core import MapRebuilt, SourceRun
from mirrord.model.runs import Run
from mirrord.replication.lane.source.declared_runs import planned, rest
from mirrord.replication.lane.source.source_epochs import continues_at
from mirrord.replication.lane.target import hole_repair
from tests.unit.replication.lane.test_rebuilding import LANE
from tests.unit.replication.lane.test_second_faults import opened, progress_at

small = st.integers(1, 6)
OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("copy"), small, small),
        st.tuples(st.just("skip"), small, small),
        st.tuples(st.just("hole"), small, small),
        st.tuples(st.just("rebuild"), small, small),
        st.tuples(st.just("back"), st.integers(1, 30), small),
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
        """Ordinals whose records a rebuilt map found in the target a second time."""
        self.skipped: set[int] = set()
        self.next = self.position = self.end = self.resumed = 0
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
            self.log[self.next] = self.position
            self.next, self.position = self.next + 1, self.position + 1
            self.end = max(self.end, self.position)
            if self.plan and self.plan[0].ordinal == self.next:
                self.position = self.plan.popleft().offset

    def skip(self, count: int, _: int) -> None:
        if not self.plan and self.position >= self.end:
            self.skipped.update(range(self.position, self.position + count))

    def hole(self, count: int, behind: int) -> None:
        """The target refuses some of the last records that were sent in this round."""
        first = self.next - behind - count
        if first < max(self.resumed, 1):
            return
        for ordinal in range(first, first + count):
            del self.log[ordinal]
        lane, record = self.play.lane, self.play.record
        lane.record, lane.resume_ordinal, lane.log.holes = record, self.next, [(first, first + count - 1)]
        lane.position = continues_at(record, self.next) or 0
        self.play.fold(*hole_repair.repair(lane, record))
        self.resume(self.next)

    def rebuild(self, count: int, by: int) -> None:
        """The last records of the log are those of offsets that are lower by some, so that some are doubled."""
        first = self.next - count
        if self.plan or first <= 0 or any(at not in self.log for at in range(first - 1, self.next)):
            return
        begin = self.log[first] - by
        offsets = [each for each in range(max(begin, 0), self.end) if each not in self.skipped][:count]
        if len(offsets) < count:
            return
        below = {offset for ordinal, offset in self.log.items() if ordinal < first}
        self.log.update(zip(range(first, self.next), offsets, strict=True))
        self.twice = {at for at in self.twice if at < first}
        self.twice.update(ordinal for ordinal in range(first, self.next) if self.log[ordinal] in below)
        missing = sorted(set(range(self.end)) - self.skipped - set(self.log.values()))
        runs = [Run(first + at, offset) for at, offset in enumerate([*offsets, *missing])]
        until = self.next + len(missing)
        self.fold(*runs, Run(until, self.end))
        self.play.fold(MapRebuilt(LANE, self.play.record.grant, first, self.next - 1, until))
        self.resume(self.next)

    def back(self, count: int, _: int) -> None:
        ordinal = max(self.next - count, 0)
        while ordinal > 0 and ordinal - 1 not in self.log:
            ordinal -= 1
        self.log = {at: offset for at, offset in self.log.items() if at < ordinal}
        self.twice = {at for at in self.twice if at < ordinal}
        self.resume(ordinal)

    def resume(self, ordinal: int) -> None:
        record = self.play.record
        left, position = rest(record, ordinal), continues_at(record, ordinal)
        assert position is not None
        runs = [Run(ordinal, position), *planned(record, ordinal)]
        if (left is not None and left.differs) or any(hole.first >= ordinal for hole in record.holes):
            lane = self.play.lane
            lane.record = record
            runs = left.runs if left is not None else runs[:1]
            self.play.fold(*hole_repair.kept_plan(lane, runs))
            self.fold(*runs)
        self.next = self.resumed = ordinal
        self.position, self.plan = runs[0].offset, deque(runs[1:])

    def check(self) -> None:
        while self.plan or self.position < self.end:
            self.copy(1, 1)
        once = [offset for ordinal, offset in self.log.items() if ordinal not in self.twice]
        assert sorted(once) == sorted(set(range(self.end)) - self.skipped)


@given(OPERATIONS)
def test_each_record_is_copied_once(operations: list[tuple[str, int, int]]) -> None:
    copying = Copying()
    for name, count, more in operations:
        getattr(copying, name)(count, more)
    copying.check()
