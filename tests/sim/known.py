"""What the holder of the lane can know about the records in a compacted target."""

from collections.abc import Iterable, Sequence

from mirrord.ledger.facts.core import Progress
from mirrord.ledger.state import LaneState
from mirrord.replication.lane.source.source_epochs import mended_until
from mirrord.replication.lane.target import position_rewind
from tests.sim import toy
from tests.sim.host import Request
from tests.sim.target import Stored

NEVER = 1 << 62


class Known:
    """Records by their numbers; foreign records are counted."""

    def __init__(self) -> None:
        self.taken: dict[int, int] = {}
        """Number of an acknowledged record → number of other writers' records in the target at that time."""
        self.takers: dict[int, tuple[str, int]] = {}
        """Number → the holder that was first answered, and the ordinal."""
        self.unknowing: dict[int, int] = {}
        """Number of a record that was last appended by a holder that could not know it → the same count then."""
        self.below_position: dict[str, set[int]] = {}
        """Holder → the records below the resume position with which it began."""
        self.planned_until = -1
        """The end (an ordinal) of what the last holder found to be copied again: it was looked up before."""
        self.planner = ""
        """The last holder that looked records up."""
        self.looked_up: dict[str, int] = {}
        """Holder → number of other writers' records there at its last lookup."""
        self.left_out: dict[int, int] = {}
        """Number of a record that a plan left out, and that was not appended since → number of other writers' records
        that the lookup could see."""
        self.appended: dict[int, int] = {}
        """Number → number of other writers' records in the target when it was appended last."""
        self.ordinals: dict[int, int] = {}
        """Number → the ordinal under which it was appended last."""
        self.limits: dict[int, int] = {}
        """Number → the same for the holder that appended it last."""

    def take_over(self, holder: str, begun: Progress | None, lane: LaneState | None) -> None:
        """Another holder begins with this progress record."""
        reached = position_rewind.valid_position(begun, lane)[1] if begun is not None else 0
        planned_until = mended_until(lane, reached) if lane is not None else -1
        self.begin(holder, reached, planned_until, _lacking(lane) if lane is not None else ())

    def begin(self, holder: str, reached: int, planned_until: int, lacking: Sequence[tuple[int, int]] = ()) -> None:
        """Another holder begins with a resume position, and with what is still to be copied again up to an ordinal.
        `lacking` are ordinals (first, last) that the target lacks according to the ledger.

        If the former holder could not know a record below this position, the position covers only the last append of
        the record. That append may have been found in the log, without an acknowledgement (`took`). If the target lacks
        the ordinal of that append as well, nothing shows that it ever had the record."""
        former = next(reversed(self.below_position), "")
        below = {number for number, (_, ordinal) in self.takers.items() if ordinal < reached}
        lost = {number for number in below if _is_within(lacking, self.takers[number][1])}
        for number in lost:
            again = self.ordinals.get(number, NEVER)
            if not self.knows(former, number) and (again >= reached or _is_within(lacking, again)):
                below.remove(number)
        for number in below & self.unknowing.keys():
            if not self.knows(former, number):
                self.taken[number] = self.unknowing[number]
        self.planned_until = planned_until
        self.below_position[holder] = below

    def knows(self, holder: str, number: int) -> bool:
        """Return whether the holder can know that the record was in the target: the record was first acknowledged to
        it, or is below the resume position with which it began. A batch may arrive after the next holder began. What
        the next one knows does not count then."""
        taker = self.takers.get(number, ("", 0))[0]
        return taker == holder or number in self.below_position.get(holder, ())

    def look_up(self, holder: str, committed: Iterable[Stored]) -> None:
        """A holder asks which records in the target are newer. It reads up to the high watermark."""
        self.planner = holder
        numbers = (-number for stored in committed for number in stored.numbers if number < 0)
        self.looked_up[holder] = max(numbers, default=0)

    def leave_out(self, numbers: Iterable[int | None]) -> None:
        """A plan leaves these records out, because the last lookup found newer ones."""
        for number in numbers:
            if number is not None:
                self.left_out[number] = self.looked_up.get(self.planner, 0)

    def arrived(self, request: Request, foreign: int, *, is_cut: bool) -> None:
        """A batch was appended, or had been before. `is_cut`: to a log that an election has truncated."""
        is_planned = request.batch.first < self.planned_until
        former = max(self.looked_up.values(), default=NEVER) if is_planned else NEVER
        # What a former holder has planned is appended without another lookup, so what that holder knew counts.
        by_plan = is_planned and request.host.name not in self.looked_up
        holder = self.planner if by_plan else request.host.name
        for at, (_, number) in enumerate(toy.records(request.data)):
            self.appended[number], self.ordinals[number] = foreign, request.batch.first + at
            self.left_out.pop(number, None)
            # Between the lookup and the append others may write, and brokers have no conditional append.
            self.limits[number] = self.looked_up.get(request.host.name, former)
            if not is_cut:
                continue
            self.unknowing.pop(number, None)
            if not self.knows(holder, number):
                self.unknowing[number] = foreign

    def came_late(self, data: bytes, foreign: int) -> set[int]:
        """Bytes that everyone had given up were appended: no lookup could keep these records out. Returns them."""
        numbers = {number for _, number in toy.records(data)}
        for number in numbers:
            self.appended[number], self.limits[number] = foreign, 0
            self.left_out.pop(number, None)
        return numbers

    def is_over(self, number: int, theirs: Iterable[int]) -> bool:
        """One of these foreign records was known to be newer, and could be seen, when this record was appended."""
        known = max(self.taken[number], self.unknowing.get(number, 0))
        return any(known < each <= self.limits.get(number, NEVER) for each in theirs)

    def took(self, requests: list[Request], foreign: int) -> None:
        """Batches were acknowledged, and the lane counts them."""
        for request in requests:
            if request.batch.first >= request.host.lane.acked:
                continue
            for at, (_, number) in enumerate(toy.records(request.data)):
                # A holder that cannot know of the first time counts from its own.
                if not self.knows(request.host.name, number):
                    self.taken[number] = foreign
                    self.takers[number] = (request.host.name, request.batch.first + at)


def _lacking(lane: LaneState) -> list[tuple[int, int]]:
    """Return the ordinals of holes whose records are to be copied again, and displaced ordinals."""
    holes = (each for each in lane.holes if not each.is_open)
    return [(each.first, each.last) for each in (*holes, *lane.displaced)]


def _is_within(ranges: Iterable[tuple[int, int]], ordinal: int) -> bool:
    return any(first <= ordinal <= last for first, last in ranges)
