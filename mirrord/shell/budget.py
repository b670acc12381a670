"""How many bytes of records a replicator holds: received frames until their last batch is answered, and what fetches
that are under way may bring."""

from collections.abc import Callable

from mirrord.shell.frames import Frame


class Budget:
    """Counts bytes; whoever wants to fetch asks first."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.held_bytes = 0
        """Of frames in use."""
        self.promised_bytes = 0
        """What requests under way may bring."""
        self.on_room: Callable[[], None] | None = None
        """Called when bytes come free after somebody was refused. It must not fetch at once: a lane may be deciding."""
        self._refused = False

    def promise(self, size: int) -> bool:
        """Whether a request for so many bytes may go out; if so they are counted until `settle`."""
        taken = self.held_bytes + self.promised_bytes
        if taken and taken + size > self.limit_bytes:
            self._refused = True
            return False
        self.promised_bytes += size
        return True

    def settle(self, size: int) -> None:
        """The request that these bytes were promised to is over."""
        self.promised_bytes -= size

    def hold(self, frame: Frame) -> "HeldFrame":
        """Count a frame's bytes for as long as anything refers to what this returns."""
        self.held_bytes += len(frame.buffer)
        return HeldFrame(frame, self)

    def give_back(self, size: int) -> None:
        """A frame is free again."""
        self.held_bytes -= size
        if self._refused:
            self._refused = False
            if self.on_room is not None:
                self.on_room()


class HeldFrame:
    """A received frame in use. Its buffer goes back to the pool when the last batch in it is forgotten.

    That is why a batch refers to its frame, and why a produce request refers to its batches until it is answered: the
    transport may still be reading the bytes.
    """

    __slots__ = ("_budget", "frame")

    def __init__(self, frame: Frame, budget: Budget) -> None:
        self.frame = frame
        self._budget = budget

    def __del__(self) -> None:
        self._budget.give_back(len(self.frame.buffer))
        self.frame.release()
