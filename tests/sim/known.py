"""What whoever holds the lane can know of the records in a compacted target."""

from tests.sim import toy
from tests.sim.host import Request

NEVER = 1 << 62


class Known:
    """Records by their numbers; others' records are counted."""

    def __init__(self) -> None:
        self.taken: dict[int, int] = {}
        """Number of a record that was acknowledged → so many of others' records stood in the target."""
        self.takers: dict[int, tuple[str, int]] = {}
        """Number → who was told first, and its ordinal."""
        self.below_mark: set[int] = set()
        """Those below the mark with which the last holder began."""
        self.looked_up = NEVER
        """So many of others' records stood there at the last look-up of the last holder."""

    def begin(self, marked: int) -> None:
        """Another holder begins with a mark."""
        self.looked_up = NEVER
        self.below_mark = {number for number, (_, ordinal) in self.takers.items() if ordinal < marked}

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
