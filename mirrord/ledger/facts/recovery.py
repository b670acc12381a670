"""Facts about a failover: an operator ends the copying of a flow, or of some of its topics, because clients move to the
target. `mirrord.ledger.folding.failovers` applies these facts to the state of a flow.

A failover has a number. A fact that carries the number of another failover does not take effect.
"""

from typing import Literal

import msgspec

from mirrord.ledger.facts.base import Fact, Origin

RecoveryMode = Literal["planned", "source-lost"]
"""Why a flow fails over. "planned": the source works, and nothing may be lost. "source-lost": the source is gone, and
what was not copied is lost."""


class LostRange(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a failover loses of one source partition."""

    topic: str
    """Name of the source topic."""
    partition: int
    """Number of the partition."""
    start: int
    """Source offset of the first record that the target may lack. All records before it have arrived, except for
    `missing`."""
    end: int
    """The last known high watermark of the source partition, or -1 if it was never seen. Not lower than `start` unless
    it is -1."""
    seen_ms: int
    """The latest time at which `end` is known to have been current, or -1."""
    target_end: int
    """High watermark of the target partition when the copying ended, or -1 if it is not known."""
    missing: tuple[tuple[int, int], ...] = ()
    """Ranges [start, end) of source offsets before `start` whose records the target lacks, because they were still to
    be copied again."""
    remark: str = ""
    """For operators: why records from `start` on may have arrived after all."""


class RecoveryBegan(Fact, frozen=True, tag="recovery_began"):
    """An operator has begun a failover.

    The fact takes effect if `number` is one more than that of the previous failover, if that one has ended, and if the
    copying of one of the topics has not been ended before. With the mode "source-lost", nothing is copied from then on.
    """

    number: int
    """Number of the failover. The first one of a flow has the number 1."""
    mode: RecoveryMode
    """Why the flow fails over."""
    topics: tuple[str, ...]
    """Names of the source topics. Empty means the whole flow, with all its future topics."""
    origin: Origin


class RecoveryStepDone(Fact, frozen=True, tag="recovery_step"):
    """A step of a failover has been completed. The fact takes effect once for each step of the failover that has begun
    and not ended."""

    number: int
    """Number of the failover."""
    step: str
    """Name of the step."""
    outcome: str = ""
    """For operators: what the step has done."""


class CopyingEnded(Fact, frozen=True, tag="copying_ended"):
    """The topics of a failover are no longer copied, by any daemon, until a failback. From then on, facts about lanes
    of these topics have no effect.

    The fact takes effect once for each failover that has begun and not ended.
    """

    number: int
    """Number of the failover."""
    lost: tuple[LostRange, ...]
    """The partitions that lose records, or of which this is not known."""
    partitions: int
    """Number of all partitions whose copying has ended."""
    seen_ms: int
    """The latest time up to which the source ends of the partitions outside `lost` are known. They lose nothing that
    was written before this time. -1 if no such time is known, or if there are no such partitions."""


class RecoveryFinished(Fact, frozen=True, tag="recovery_finished"):
    """A failover has ended: it is complete, or an operator has cancelled it. It can be cancelled until the copying has
    ended, or until the step "settle" is done. After it was cancelled, everything is copied as before."""

    number: int
    """Number of the failover."""
    cancelled: bool
    """Whether an operator has cancelled it."""
    at_ms: int
    """Wall-clock time, for information only."""
    why: str = ""
    """If it was cancelled by mirrord itself, the reason. Otherwise empty."""


RecoveryFact = RecoveryBegan | RecoveryStepDone | CopyingEnded | RecoveryFinished


class DoneStep(msgspec.Struct, frozen=True, array_like=True):
    """A completed step, as the state of a flow keeps it."""

    step: str
    outcome: str


class Recovery(msgspec.Struct, frozen=True, array_like=True):
    """A failover, as the state of a flow keeps it."""

    number: int
    mode: RecoveryMode
    topics: tuple[str, ...]
    origin: Origin
    steps: tuple[DoneStep, ...] = ()
    """The completed steps, in order."""
    ended: bool = False
    """Whether the copying has ended (`CopyingEnded`)."""
    lost: tuple[LostRange, ...] = ()
    partitions: int = 0
    """Number of all partitions whose copying has ended."""
    seen_ms: int = -1
    """As in `CopyingEnded`."""
    finished_ms: int = -1
    """When the failover was completed or cancelled, or -1 while it is in progress."""
    cancelled: bool = False
    why: str = ""
    """Why mirrord itself has cancelled it, or an empty string."""
