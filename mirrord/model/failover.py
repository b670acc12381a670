"""The receipt of a failover, in the form that operators and programs receive."""

from typing import Literal

import msgspec

FailoverOutcome = Literal["complete", "cancelled", "in progress"]


class FailoverStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The newest failover of a flow."""

    number: int
    mode: str
    outcome: FailoverOutcome
    step: str = ""
    """The step that is being carried out. Empty if the failover is not in progress."""
    lost_records: int | None = None
    """Number of source offsets that are lost. None if this is not known, or not known yet."""


class LostPartition(msgspec.Struct, frozen=True, kw_only=True):
    """What a failover loses of one source partition."""

    topic: str
    partition: int
    target_topic: str = ""
    """Empty if the partition was never copied."""
    start: int
    """Source offset of the first record that the target may lack."""
    end: int | None = None
    """High watermark of the source partition when it was last seen. None if it was never seen."""
    seen_ms: int | None = None
    """The latest time at which `end` is known to have been current."""
    target_end: int | None = None
    """High watermark of the target partition when the copying ended."""
    missing: tuple[tuple[int, int], ...] = ()
    """Ranges [start, end) of source offsets before `start` whose records the target lacks as well."""
    remark: str = ""
    """Why records from `start` on may have arrived after all, or an empty string."""


class FailoverStep(msgspec.Struct, frozen=True, kw_only=True):
    """A completed step."""

    step: str
    outcome: str = ""


class FailoverReceipt(msgspec.Struct, frozen=True, kw_only=True):
    """What a failover has done to one flow, and what clients need to continue on the target."""

    flow: str
    source: str
    target: str
    number: int
    mode: str
    outcome: FailoverOutcome
    topics: tuple[str, ...] = ()
    """The source topics whose copying the failover ends. Empty means all topics of the flow."""
    by: str = ""
    reason: str = ""
    began_ms: int
    finished_ms: int | None = None
    steps: tuple[FailoverStep, ...] = ()
    """The completed steps, in order."""
    partitions: int = 0
    """Number of partitions whose copying has ended."""
    seen_ms: int | None = None
    """The latest time up to which the source ends of the partitions outside `lost` are known. Records that were written
    to them after this time are lost as well. None if no such time is known."""
    lost: tuple[LostPartition, ...] = ()
    """The partitions that lose records, or of which this is not known. The other partitions were copied completely, as
    far as the source was seen (`seen_ms`)."""
    lost_records: int | None = 0
    """Number of source offsets that are lost. None if it is not known of a partition."""
    bootstrap: tuple[str, ...] = ()
    """Bootstrap servers of the target."""
    names: dict[str, str] = {}
    """The name of the target topic, by source topic."""
    why: str = ""
    """Why mirrord has cancelled the failover, or an empty string."""


class FailoverReport(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of `mirrord failover`."""

    version: str
    flows: tuple[FailoverReceipt, ...]
