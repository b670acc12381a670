"""The phases of a lane, the transitions between them, and the stages of a resume."""

from enum import Enum


class Phase(Enum):
    """The phase of a lane. `WAYS` says which phases may follow each phase."""

    OPENING = "opening"
    """The lane appends its facts (producer id, grant, first source offset) to the ledger and waits until they take
    effect."""
    WAITING = "waiting"
    """The lane waits until batches from a former holder or a dead connection can no longer be appended."""
    RESUMING = "resuming"
    """The lane asks the target which of the lane's records are in the target log."""
    REBUILDING = "rebuilding"
    """Target and source differ. The lane is halted while both logs are read to find out what the target holds."""
    COPYING = "copying"
    SETTLING = "settling"
    """The lane is about to resume, for example because a batch was refused, or because it is not known whether a batch
    was appended. Nothing new is sent until all batches in flight have been answered."""
    DRAINING = "draining"
    DRAINED = "drained"
    HALTED = "halted"
    GONE = "gone"


_STOPS = frozenset({Phase.DRAINING, Phase.DRAINED, Phase.OPENING, Phase.HALTED, Phase.GONE})
"""The phases that may follow any phase in which a lane makes progress. At any time, the lane can be drained, take a new
grant, halt, or be taken by another replicator."""

WAYS: dict[Phase, frozenset[Phase]] = {
    Phase.OPENING: _STOPS | {Phase.RESUMING},
    Phase.WAITING: _STOPS | {Phase.RESUMING},
    Phase.RESUMING: _STOPS | {Phase.WAITING, Phase.COPYING, Phase.REBUILDING},
    Phase.COPYING: _STOPS | {Phase.RESUMING, Phase.SETTLING},
    Phase.SETTLING: _STOPS | {Phase.RESUMING},
    Phase.REBUILDING: _STOPS | {Phase.RESUMING},
    Phase.HALTED: frozenset({Phase.RESUMING, Phase.OPENING, Phase.GONE}),
    Phase.DRAINING: frozenset({Phase.DRAINED, Phase.GONE}),
    Phase.DRAINED: frozenset(),
    Phase.GONE: frozenset(),
}
"""For each phase, the phases that may follow it. Tests check the diagram in the documentation, and the lanes in the
simulator, against this table."""


class Stage(Enum):
    """The current step of a resume. The lane is waiting for the result of this step, unless it is done. The first three
    steps are the requests of the resume sandwich."""

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
