"""Decides at which offset of the source partition a new lane starts.

Only the function `partition_start` makes this decision. A replicator calls it when a lane opens. `mirrord start
--dry-run` and `mirrord check` call it to report what would happen. The configured `start` is resolved to offsets
earlier, when a topic is first selected (see `mirrord.ledger.start_offsets`).
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
"""The rule that has decided where a lane starts. The docstring of `partition_start` describes the rules in the same
order as these names. The first rule that applies decides."""


class FixedStart(NamedTuple):
    """The offset to which the configured `start` was resolved for a partition, and the value of `start` at that
    time.
    """

    start: StartPoint
    offset: int


class LedgerEvidence(NamedTuple):
    """What the ledger says about a source partition before the partition's lane begins."""

    source_recreated: bool = False
    """Whether the flow has copied a former source topic with the same name."""
    copied_from: int | None = None
    """The source offset of the first record that was copied into a former target topic with the same name. None if
    there was no such topic."""
    began_at: int | None = None
    """The source offset of the first record that was copied into any target topic, even one with a different name. None
    if no record was copied."""
    late: bool = False
    """Whether the partition was created after the flow first selected its topics. The configured `start` does not apply
    to such a partition (see `mirrord.ledger.start_offsets`)."""
    fixed: FixedStart | None = None
    """The offset to which the configured `start` was resolved when the topic was first selected, or None if there is no
    such offset."""

    @property
    def is_recreated(self) -> bool:
        """Whether the source topic or the target topic was deleted and re-created. If so, the start of the lane does
        not depend on what the target contains."""
        return self.source_recreated or self.copied_from is not None


class TargetEvidence(NamedTuple):
    """What the target contains that affects where a new lane starts."""

    inherited: int | None = None
    """The source offset at which MirrorMaker 2 stopped copying. -1 if the target partition ends with records that were
    not found on the source. None if MirrorMaker 2 has not copied the partition."""
    trouble: str = ""
    """Why the lane must not begin now, or an empty string. If `inherited` is set, this field has no effect."""
    mm2_copied_topic: bool = False
    """Whether MirrorMaker 2 has copied any partition of the topic."""
    has_lost_copies: bool = False
    """Whether the target contains copies of this partition's records that are not in the ledger, and the configuration
    nevertheless permits the lane to begin."""


NO_EVIDENCE = TargetEvidence()


class PartitionStart(NamedTuple):
    """The decision about where a lane starts. Most rules need one offset from the source. `ask` says which offset that
    is, and `offset_for` computes the start offset from the source's answer."""

    reason: StartReason
    ask: StartPoint | None = None
    """The offset to request from the source. None if the start offset is already known ("taken-over"), or if it cannot
    be decided yet ("waits")."""
    position: int = -1
    """The start offset of a lane that takes over from MirrorMaker 2. It is -1 for any other lane."""
    at_least: int = 0
    """A lower limit for the start offset. If the log start offset of the source partition is higher, the lane starts at
    the log start offset."""
    at_most: int | None = None
    """An upper limit for the start offset. If the source partition's log ends before this offset, the lane starts at
    the log end. None if there is no upper limit."""
    trouble: str = ""

    def offset_for(self, answer: int) -> int:
        """Return the start offset of the lane. `answer` is the source's answer to `ask`."""
        return max(answer if self.at_most is None else min(answer, self.at_most), self.at_least)


def partition_start(start: StartPoint, ledger: LedgerEvidence, target: TargetEvidence = NO_EVIDENCE) -> PartitionStart:
    """Decide where a new lane starts. `start` is the configured value for the lane's topic. The first rule that applies
    decides:

    - The target topic was deleted and re-created: start at the first source record that was copied into the deleted
      topic. If the source no longer has that record, start at the first record that it still has.
    - The source topic was deleted and re-created: start at the first offset. Positions in the deleted topic do not
      apply to the new topic.
    - MirrorMaker 2 has copied the partition: start where MirrorMaker 2 stopped.
    - `trouble` is set: the lane waits, because it must not begin now.
    - `start` is "earliest": start at the first offset.
    - The partition was copied into a target topic with a different name: start at the first record that was copied. If
      the source no longer has that record, start at the first record that it still has.
    - The partition was created after the flow first selected its topics: start at the first offset, because `start`
      applies only to partitions that existed then. This rule does not apply if the target contains copies that are not
      in the ledger (`has_lost_copies`).
    - MirrorMaker 2 has copied other partitions of the topic: start at the first offset, because this partition was
      added after MirrorMaker 2 began to copy the topic.
    - `start` was resolved when the topic was first selected, and has not been changed since: start at the resolved
      offset. If the source's log now ends before that offset, start at the log end.
    - In all other cases: start at the offset to which `start` resolves now.
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
