"""Each rule of `tests.sim.mutations` switched off: the simulator finds a violation, at a pinned seed, and none with the
rule on."""

import pytest

from tests.sim.mutations import MUTATIONS, Mutation
from tests.sim.scheduler import STEPS, Story

SEEDS = {
    "1 two witnesses: the base offset": 14,
    "1 two witnesses, acknowledged together": 39,
    "2 window 1 until a first acknowledgement": 2,
    "2 a success after a failure is a hole": 5,
    "3 the sandwich: one leader epoch around it": 100,
    "3 no entry means unknown": 14,
    "3 the end once more before the first produce": 649,
    "4 the lease barrier": 1277,
    "5 went back is not lost": 406,
    "6 first fact wins": 121,
    "intent before gap": 0,
    "each answer counts once": 0,
    "a fetch carries the epoch of the batch before it": 3383,
    "records missing after a difference follow": 139,
    "an epoch is recorded before its first record": 8,
    "an epoch waits for former holders": 2301,
    "a removed record waits for former holders": 21332,
    "higher epochs are not in a log that parts": 59,
    "epochs of ordinals that may still arrive are compared": 279,
    "resync on doubt": 105,
    "the source is asked about records after those that are copied again": 349764205235,
    "other records are where copies were lost": 460,
    "a later leader's word is not enough": 111606726753,
    "one of two records is not named": 112,
    "records that moved to lower offsets are compared": 5329,
    "a loss is recorded": 5,
    "each offset is copied or explained": 0,
    "a seek is carried out": 1,
    "the end once more before a seek": 1062915507988,
    "the epochs of skipped records are recorded": 34,
    "a bound decision is not requested again": 518,
    "only parked records are skipped": 3,
    "a parked record is not parked again": 2,
    "trust, then check": 356,
    "3 the sandwich: wait for the high watermark": 42,
    "a superseded record is not copied again": 0,
    "a record that the cleaner removed is newer as well": 1080832167512,
    "a lost record is copied again": 216,
    "the last records may have been cleaned": 0,
    "a lost record is not put over a newer one": 73,
    "a record that was there before a lost one is older": 1574,
    "other clients' aborted records supersede nothing": 1,
    "records of open transactions supersede nothing": 1,
    "other clients' committed records supersede": 0,
    "a lookup reads above open transactions": 0,
    "transactions end above open ones": 2,
    "a scan does not wait for transactions": 4,
    "a comparison does not wait for transactions": 0,
    "a marker is not a batch of a lane": 0,
    "a rebuild looks up what the target lacks": 0,
    "a missing record is after those that the log has": 7,
    "lost records are looked up again after a rebuild": 111,
    "failover: facts about lanes are void after the end": 40,
    "failover: the end fences lanes": 231,
    "failover: steps need the lease": 1,
    "failover: ordinals lead to source offsets": 6,
    "failover: missing records are named": 138,
    "failover: the target is read": 1,
    "failover: former holders are awaited": 3355,
    "failover: only a drained lane is final": 7,
    "failover: only the last drain is final": 1,
    "failover: recorded ends count": 1,
    "failover: a planned one asks the source again": 23,
    "failover: a planned one loses nothing": 0,
    "failover: a planned one needs each leader": 49,
    "failover: lanes are left before the end": 7,
    "failover: lanes are revoked": 7,
    "failover: a cancelled one is not carried on": 242,
    "failover: positions follow the final map": 7,
    "failover: an incomplete map is not exact": 26,
    "failover: the last commits count": 24,
    "failover: positions are translated": 44,
}
"""`python -m tests.sim.pin` finds new ones after a change of the lane or of the scheduler."""
ONLY_COUNTED = {
    # If the rule is switched off, the map is rebuilt without need, and the records of the lost history have no source
    # offset in it. `test_rebuilding` and `test_last_copied` check the rule itself.
    "another history is not compared",
    # If the rule is switched off, the broker refuses the next batch, or the lane finds the hole and repairs it. Only
    # the order of records suffers, at ordinals that the ledger then names. `test_fast_handoff` checks the rule itself.
    "a word is compared with the target",
    "a position does not pass unread parts of the log",
    "batches of a dead connection may arrive",
    "records since a takeover are compared again",
    "another leader's log is read",
    "a drain in doubt is not clean",
    "a handoff counts from the last holder only",
    "a first position does not count forever",
    # Pinned as stories: `test_left_and_taken` and `test_never_lost`.
    "what was told is about one holder",
    "what was never written is not lost",
    "what was not sent is not lost",
    "a lane resumes after an election",
    "what was appended in between is read",
    "own batches after the known end are found",
    "a broker may soon forget",
    "answers are awaited before a resume",
    "a lane resumes",
    "a difference is repaired",
    "a hole is repaired",
    "a log that went back is repaired",
    "a scan asks whether records may have been removed",
    "batches without a gap may follow removed ones",
    "a scan reports other clients' batches",
    "a comparison reads what the source can return",
    "a reused offset is noticed by its epoch",
    "a truncated record is not compared",
    "void ordinals are not compared",
    "batches with equal headers are compared",
    "a comparison reports what is in front of the position",
    "a failed read is repeated",
    "relocation begins where the ledger says",
    "relocation finds committed records only",
    "a lookup reads as the lane does",
    "a lookup leaves out aborted records",
    "a lookup finds copies of uncommitted records",
    "nothing follows what is never copied",
    "a lookup leaves out skipped records",
    "a lookup asks the filter again",
    "a lookup knows a later epoch",
    "retention is not the cleaner",
    "a lookup reads up to the new end",
    "a lost record may be superseded below its offset",
    "a lookup reads what was appended and removed",
    "unread ordinals hold other records",
    "the source is asked before a seek",
    # Only a leap over expired records is without an epoch (`test_short_source`).
    "a lane goes back after a leap",
    # Pinned as stories, and tested in `test_last_copied`, `test_earlier_batches` and `test_newer_than_lost`.
    "the source is not asked about records that it has replaced",
    "batches of reassigned ordinals are compared",
    "a lost record has a place of its own",
    "what was superseded by a record that both logs have lost is looked up",
    "a record that gave way does so again",
    "a seek skips no record of a later epoch",
    "the source is asked about refused records",
    "the source is asked about skipped records",
    "an epoch may begin before the first copied record",
    "a comparison is repeated up to the new end",
    "acknowledged records may be missing at the end",
    # Noticed by `test_returned_logs`.
    "batches of another log are compared",
    "the ledger names ordinals that an earlier leader may have appended",
    "all batches of a log that came back are compared",
    "batches that a rebuild has not read are compared",
    # Only in at-least-once mode: tested in `test_target_retention`.
    "a position may follow others' records only",
    # Noticed only by stories in which the sequence numbers start again (`Shape.until_wrap`).
    "sequence numbers start again",
    "sequence number 0 follows 2^31 - 1",
}
"""Rules without a pinned story. `make mutants` counts the stories that notice each of them."""


def test_each_mutation_has_a_pinned_story_or_is_only_counted() -> None:
    assert {each.rule for each in MUTATIONS} - SEEDS.keys() == ONLY_COUNTED


@pytest.mark.parametrize("mutation", [each for each in MUTATIONS if each.rule in SEEDS], ids=lambda each: each.rule)
def test_the_simulator_notices(mutation: Mutation, monkeypatch: pytest.MonkeyPatch) -> None:
    seed = SEEDS[mutation.rule]
    Story(seed, mutation.shape).run(STEPS)
    mutation.switch_off(monkeypatch)
    with pytest.raises(AssertionError):
        Story(seed, mutation.shape).run(STEPS)
