"""Where a lane without a history starts in its source partition.

Only `partition_start` makes this decision. Replicators apply it when a lane opens, and the reports of `mirrord start
--dry-run` and `mirrord check` apply it to say what would happen. The offsets of `start` itself are resolved earlier,
when a topic is first selected (`mirrord.ledger.start_offsets`).
"""

from typing import Literal, NamedTuple

from mirrord.config.value_parsers import StartPoint

StartReason = Literal[
    "target-recreated",
    "source-recreated",
    "taken-over",
    "waits",
    "earliest",
    "renamed",
    "added-later",
    "added-after-mm2",
    "first-selected",
    "configured",
]
"""The rule that decides. The first one that applies wins; `partition_start` describes them in this order."""


class FixedStart(NamedTuple):
    """A start offset, and the value of `start` under which it was resolved."""

    start: StartPoint
    offset: int


class LedgerEvidence(NamedTuple):
    """What the ledger says about a source partition before a lane of it begins."""

    source_recreated: bool = False
    """Whether another source topic of this name was copied."""
    copied_from: int | None = None
    """The source offset from which on another target topic of this name held the records."""
    began_at: int | None = None
    """The source offset from which on a target topic of another name holds the records."""
    late: bool = False
    """Whether the partition was added, or its topic created, too late for `start` to apply
    (`mirrord.ledger.start_offsets`)."""
    fixed: FixedStart | None = None
    """The start offset that was resolved when the topic was first selected."""

    @property
    def is_recreated(self) -> bool:
        """Whether the source or the target topic was created again. The contents of the target then decide nothing."""
        return self.source_recreated or self.copied_from is not None


class TargetEvidence(NamedTuple):
    """What the target holds although the ledger has no history of the lane."""

    inherited: int | None = None
    """The source offset at which MirrorMaker 2 stopped; -1 if its copy could not be identified."""
    trouble: str = ""
    """Why the lane must not begin now. Has no effect if there is an `inherited` position."""
    mm2_copied_topic: bool = False
    """Whether MirrorMaker 2 has copied any partition of the topic."""
    has_lost_copies: bool = False
    """Whether the target holds copies of this partition that the ledger has lost, and the operator lets it begin."""


NO_EVIDENCE = TargetEvidence()


class PartitionStart(NamedTuple):
    """The decision. Most rules need one offset from the source: `ask` says which one, `offset_for` applies it."""

    reason: StartReason
    ask: StartPoint | None = None
    """The offset to ask the source for; None if the position is known ("taken-over") or not yet decided ("waits")."""
    position: int = -1
    """The start offset of a lane that takes over from MirrorMaker 2; -1 otherwise."""
    at_least: int = 0
    """The lane starts at this source offset, or where the source's log begins if that is higher."""
    at_most: int | None = None
    """The lane starts at this source offset, or where the source's log ends if that is lower."""
    trouble: str = ""

    def offset_for(self, answer: int) -> int:
        """Return the start offset. `answer` is the offset with which the source answered `ask`."""
        return max(answer if self.at_most is None else min(answer, self.at_most), self.at_least)


def partition_start(start: StartPoint, ledger: LedgerEvidence, target: TargetEvidence = NO_EVIDENCE) -> PartitionStart:
    """Decide where a lane without a history starts. `start` is the configured one of its topic.

    - The target topic was created again: at the first offset that the former one held, if the source still has it.
    - The source topic was created again: at the first offset. Positions in the former topic do not apply to it.
    - MirrorMaker 2 has copied the partition: where it stopped.
    - There is trouble at the target: the lane waits.
    - `start` is "earliest": at the first offset.
    - The partition is copied under another name: where that copy begins, if the source still has it.
    - The partition was added after the flow first saw its topic: at the first offset, because `start` is about what
      existed then. A partition whose copies the ledger has lost is not new.
    - MirrorMaker 2 has copied other partitions of the topic: at the first offset, for the same reason.
    - `start` was resolved when the topic was first selected: at that offset, or at the log end if the source has lost
      the end of its log since.
    - Otherwise, as `start` says now.
    """
    if ledger.copied_from is not None:
        return PartitionStart("target-recreated", "earliest", at_least=ledger.copied_from)
    if ledger.source_recreated:
        return PartitionStart("source-recreated", "earliest")
    if target.inherited is not None:
        return PartitionStart("taken-over", position=target.inherited)
    if target.trouble:
        return PartitionStart("waits", trouble=target.trouble)
    if start == "earliest":
        return PartitionStart("earliest", "earliest")
    if ledger.began_at is not None:
        return PartitionStart("renamed", "earliest", at_least=ledger.began_at)
    if ledger.late and not target.has_lost_copies:
        return PartitionStart("added-later", "earliest")
    if not ledger.late and target.mm2_copied_topic:
        return PartitionStart("added-after-mm2", "earliest")
    if ledger.fixed is not None and ledger.fixed.start == start:
        return PartitionStart("first-selected", "latest", at_most=ledger.fixed.offset)
    return PartitionStart("configured", start)
