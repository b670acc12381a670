"""The phases of a lane, the ways between them, and the stages of a resume."""

from enum import Enum


class Phase(Enum):
    """The phase of a lane. Transitions: opening → resuming ⇄ waiting; resuming → copying → settling → resuming; copying
    → draining → drained; resuming, copying → rebuilding → resuming; any phase → halted or gone."""

    OPENING = "opening"
    """The lane's facts are being bound: producer id, grant, first source offset."""
    WAITING = "waiting"
    """The lane waits until a former holder or a dead connection can no longer write."""
    RESUMING = "resuming"
    """The lane asks the target which of its records are in the log."""
    REBUILDING = "rebuilding"
    """Target and source differ. The lane is halted while both logs are read to find out what the target holds."""
    COPYING = "copying"
    SETTLING = "settling"
    """A batch was refused or an answer is in doubt. Nothing new is sent until all batches in flight are answered."""
    DRAINING = "draining"
    DRAINED = "drained"
    HALTED = "halted"
    GONE = "gone"


class Stage(Enum):
    """The question of the resume sandwich that is open."""

    END = "end"
    PRODUCERS = "producers"
    END_AGAIN = "end-again"
    VISIBLE = "visible"
    SCAN = "scan"
    VERIFY = "verify"
    SHARED = "shared"
    MISSING = "missing"
    CHECK = "check"
    DIFFERENCE = "difference"
    LOCATE = "locate"
    FACTS = "facts"
    RELEASED = "released"
    HANDED = "handed"
    DONE = "done"
