"""What the holder of the lane can know about the records in a compacted target."""

from collections.abc import Iterable

from tests.sim import toy
from tests.sim.host import Request
from tests.sim.target import Stored

NEVER = 1 << 62


class Known:
    """Records by their numbers; others' records are counted."""

    def __init__(self) -> None:
        self.taken: dict[int, int] = {}
        """Number of an acknowledged record → number of other writers' records in the target at that time."""
        self.takers: dict[int, tuple[str, int]] = {}
        """Number → the holder that was first answered, and the ordinal."""
        self.unknowing: dict[int, int] = {}
        """Number of a record that was last appended by a holder that could not know it → the same count then."""
        self.below_mark: set[int] = set()
        """Those below the mark with which the last holder began."""
        self.looked_up = NEVER
        """Number of other writers' records there at the last look-up of the last holder."""

    def begin(self, marked: int) -> None:
        """Another holder begins with a mark."""
        self.looked_up = NEVER
        self.below_mark = {number for number, (_, ordinal) in self.takers.items() if ordinal < marked}

    def look_up(self, committed: Iterable[Stored]) -> None:
        """The last holder asks which records in the target are newer. It reads up to the high watermark."""
        self.looked_up = max((-number for stored in committed for number in stored.numbers if number), default=0)

    def arrived(self, request: Request, foreign: int) -> None:
        """A batch was appended, or had been before, to a log that an election has cut."""
        for _, number in toy.records(request.data):
            self.unknowing.pop(number, None)
            if self.takers.get(number, ("", 0))[0] != request.host.name and number not in self.below_mark:
                self.unknowing[number] = foreign

    def newer_from(self, number: int) -> int:
        """A record of others with a higher number than this was known to be newer."""
        return max(self.taken[number], self.unknowing.get(number, 0))

    def took(self, requests: list[Request], foreign: int) -> None:
        """Batches were acknowledged, and the lane counts them."""
        for request in requests:
            if request.batch.first >= request.host.lane.acked:
                continue
            for at, (_, number) in enumerate(toy.records(request.data)):
                # A holder that cannot know of the first time counts from its own.
                taker = self.takers.get(number, ("", 0))[0]
                if taker != request.host.name and number not in self.below_mark:
                    self.taken[number] = foreign
                    self.takers[number] = (request.host.name, request.batch.first + at)
