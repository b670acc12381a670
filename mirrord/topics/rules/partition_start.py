"""Decides where a lane without a history starts in its source partition.

Only `partition_start` makes this decision. Replicators use it when a lane opens, and `mirrord start --dry-run` and
`mirrord check` use it to report what would happen. The offsets that the configured `start` means are resolved earlier,
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
"""The rule by which the start was decided. The first rule that applies decides. `partition_start` describes the rules
in this order."""


class FixedStart(NamedTuple):
    """A resolved start offset, and the configured value of `start` from which it was resolved."""

    start: StartPoint
    offset: int


class LedgerEvidence(NamedTuple):
    """What the ledger says about a source partition before a lane for it begins."""

    source_recreated: bool = False
    """Whether a former source topic of the same name was copied."""
    copied_from: int | None = None
    """The first source offset that a former target topic of the same name contained. None if there was no such
    topic."""
    began_at: int | None = None
    """The first source offset that a target topic of another name contains. None if there is no such topic."""
    late: bool = False
    """Whether the partition was added, or its topic created, after the flow's topics were first selected, so that
    `start` does not apply (`mirrord.ledger.start_offsets`)."""
    fixed: FixedStart | None = None
    """The start offset that was resolved when the topic was first selected, or None."""

    @property
    def is_recreated(self) -> bool:
        """Whether the source topic or the target topic was deleted and created again. In that case the contents of the
        target do not matter."""
        return self.source_recreated or self.copied_from is not None


class TargetEvidence(NamedTuple):
    """What the target contains although the ledger has no history of the lane."""

    inherited: int | None = None
    """The source offset at which MirrorMaker 2 stopped. -1 if its copy could not be identified. None if it has not
    copied the partition."""
    trouble: str = ""
    """Why the lane must not begin now, or an empty string. It has no effect if `inherited` is set."""
    mm2_copied_topic: bool = False
    """Whether MirrorMaker 2 has copied any partition of the topic."""
    has_lost_copies: bool = False
    """Whether the target contains copies of this partition that the ledger no longer records, and an operator has
    permitted the lane to begin."""


NO_EVIDENCE = TargetEvidence()


class PartitionStart(NamedTuple):
    """The decision where a lane starts. Most rules need one offset from the source: `ask` says which one, and
    `offset_for` turns the source's answer into the start offset."""

    reason: StartReason
    ask: StartPoint | None = None
    """Which offset to request from the source. None if the position is already known ("taken-over") or cannot be
    decided yet ("waits")."""
    position: int = -1
    """The start offset of a lane that takes over from MirrorMaker 2. Otherwise -1."""
    at_least: int = 0
    """The lane starts at this source offset, or at the log start offset of the source partition if that is higher."""
    at_most: int | None = None
    """The lane starts at this source offset, or at the end of the source partition if that is lower. None if there is
    no upper limit."""
    trouble: str = ""

    def offset_for(self, answer: int) -> int:
        """Return the start offset of the lane. `answer` is the offset that the source has returned for `ask`."""
        return max(answer if self.at_most is None else min(answer, self.at_most), self.at_least)


def partition_start(start: StartPoint, ledger: LedgerEvidence, target: TargetEvidence = NO_EVIDENCE) -> PartitionStart:
    """Decide where a lane without a history starts. `start` is the configured value for its topic.

    - The target topic was deleted and created again: at the first source offset that the former one contained, or at
      the first offset that the source still has.
    - The source topic was deleted and created again: at the first offset. Positions in the former topic do not apply to
      the new one.
    - MirrorMaker 2 has copied the partition: where it stopped.
    - `trouble` says why the lane must not begin now: the lane waits.
    - `start` is "earliest": at the first offset.
    - The partition was copied into a target topic of another name: at the first source offset in that topic, or at the
      first offset that the source still has.
    - The partition was added after the flow first selected its topic: at the first offset, because `start` applies only
      to partitions that existed then. This rule does not apply to a partition whose copies the ledger has lost.
    - MirrorMaker 2 has copied other partitions of the topic: at the first offset, because this partition was added
      after MirrorMaker 2 began.
    - `start` was resolved when the topic was first selected: at that offset, or at the log end if the source's log has
      been truncated since then.
    - Otherwise: at the offset that `start` means now.
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
