"""Where a lane without a history starts, case by case."""

import pytest

from mirrord.config.value_parsers import StartPoint
from mirrord.topics.rules.partition_start import (
    FixedStart,
    LedgerEvidence,
    PartitionStart,
    StartReason,
    TargetEvidence,
    partition_start,
)

TIME = 1_700_000_000_000
FIXED = FixedStart("latest", 12)


@pytest.mark.parametrize(
    ("start", "ledger", "target", "expected"),
    [
        ("latest", LedgerEvidence(), TargetEvidence(), PartitionStart("configured", "latest")),
        (TIME, LedgerEvidence(), TargetEvidence(), PartitionStart("configured", TIME)),
        ("earliest", LedgerEvidence(), TargetEvidence(), PartitionStart("earliest", "earliest")),
        (
            "latest",
            LedgerEvidence(source_recreated=True, late=True),
            TargetEvidence(),
            PartitionStart("source-recreated", "earliest"),
        ),
        (
            "latest",
            LedgerEvidence(copied_from=7, began_at=3, late=True),
            TargetEvidence(),
            PartitionStart("target-recreated", "earliest", at_least=7),
        ),
        (
            "latest",
            LedgerEvidence(source_recreated=True, copied_from=7),
            TargetEvidence(),
            PartitionStart("target-recreated", "earliest", at_least=7),
        ),
        ("latest", LedgerEvidence(), TargetEvidence(inherited=90), PartitionStart("taken-over", position=90)),
        ("earliest", LedgerEvidence(late=True), TargetEvidence(90), PartitionStart("taken-over", position=90)),
        ("latest", LedgerEvidence(), TargetEvidence(-1, "strange"), PartitionStart("taken-over", position=-1)),
        ("latest", LedgerEvidence(), TargetEvidence(trouble="busy"), PartitionStart("waits", trouble="busy")),
        ("earliest", LedgerEvidence(), TargetEvidence(trouble="busy"), PartitionStart("waits", trouble="busy")),
        (
            "latest",
            LedgerEvidence(began_at=5, late=True),
            TargetEvidence(),
            PartitionStart("renamed", "earliest", at_least=5),
        ),
        ("earliest", LedgerEvidence(began_at=5), TargetEvidence(), PartitionStart("earliest", "earliest")),
        ("latest", LedgerEvidence(late=True), TargetEvidence(), PartitionStart("added-later", "earliest")),
        (TIME, LedgerEvidence(late=True), TargetEvidence(), PartitionStart("added-later", "earliest")),
        (
            "latest",
            LedgerEvidence(late=True),
            TargetEvidence(has_lost_copies=True),
            PartitionStart("configured", "latest"),
        ),
        (
            "latest",
            LedgerEvidence(),
            TargetEvidence(mm2_copied_topic=True),
            PartitionStart("added-after-mm2", "earliest"),
        ),
        (
            "latest",
            LedgerEvidence(fixed=FIXED),
            TargetEvidence(mm2_copied_topic=True),
            PartitionStart("added-after-mm2", "earliest"),
        ),
        (
            "latest",
            LedgerEvidence(fixed=FIXED),
            TargetEvidence(),
            PartitionStart("first-selected", "latest", at_most=12),
        ),
        ("earliest", LedgerEvidence(fixed=FIXED), TargetEvidence(), PartitionStart("earliest", "earliest")),
        (TIME, LedgerEvidence(fixed=FIXED), TargetEvidence(), PartitionStart("configured", TIME)),
    ],
    ids=[
        "latest",
        "a-time",
        "earliest",
        "the-source-topic-was-created-again",
        "the-target-topic-was-created-again",
        "both-topics-were-created-again",
        "mirrormaker-2-copied-it",
        "mirrormaker-2-comes-before-earliest",
        "the-copy-is-strange",
        "trouble-at-the-target",
        "trouble-comes-before-earliest",
        "copied-under-another-name",
        "earliest-comes-before-another-name",
        "added-later",
        "added-later-and-start-is-a-time",
        "added-later-but-its-copies-were-lost",
        "added-after-mirrormaker-2",
        "seen-first-but-after-mirrormaker-2",
        "resolved-when-first-selected",
        "earliest-is-configured-since",
        "a-time-is-configured-since",
    ],
)
def test_the_first_rule_that_applies_decides(
    start: StartPoint, ledger: LedgerEvidence, target: TargetEvidence, expected: PartitionStart
) -> None:
    assert partition_start(start, ledger, target) == expected


@pytest.mark.parametrize(
    ("ledger", "reason", "answer", "offset"),
    [
        (LedgerEvidence(copied_from=50), "target-recreated", 20, 50),
        (LedgerEvidence(copied_from=7), "target-recreated", 20, 20),
        (LedgerEvidence(began_at=50), "renamed", 20, 50),
        (LedgerEvidence(began_at=7), "renamed", 20, 20),
        (LedgerEvidence(fixed=FIXED), "first-selected", 50, 12),
        (LedgerEvidence(fixed=FIXED), "first-selected", 7, 7),
        (LedgerEvidence(), "configured", 31, 31),
        (LedgerEvidence(source_recreated=True), "source-recreated", 20, 20),
    ],
)
def test_the_answer_of_the_source_limits_the_offset(
    ledger: LedgerEvidence, reason: StartReason, answer: int, offset: int
) -> None:
    """The source may have lost the beginning of its log, or the end of it."""
    decided = partition_start("latest", ledger)
    assert (decided.reason, decided.offset_for(answer)) == (reason, offset)


def test_topics_that_were_created_again_need_no_look_at_the_target() -> None:
    assert LedgerEvidence(source_recreated=True).is_recreated
    assert LedgerEvidence(copied_from=0).is_recreated
    assert not LedgerEvidence(began_at=0, late=True, fixed=FIXED).is_recreated
