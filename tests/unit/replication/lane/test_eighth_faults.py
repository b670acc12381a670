"""Faults of the seventh round of fixes: epochs, records that the cleaner removed, and resume positions after others'
records."""

import msgspec
import pytest

from mirrord.kafka.protocol.record_batch import TRANSACTIONAL
from mirrord.ledger.facts.core import SourceRun, TargetRun
from mirrord.model.runs import Run
from mirrord.replication.lane.phases import Phase
from mirrord.replication.lane.signals import (
    Append,
    AskCheck,
    AskDivergence,
    AskEnd,
    AskScan,
    CheckAnswer,
    Chunk,
    DivergenceAnswer,
    Effects,
    EndAnswer,
    FetchFrom,
    Halted,
    OwnBatch,
    ScanAnswer,
    TargetMoved,
)
from mirrord.replication.lane.target.superseded_records import (
    AskShared,
    AskSuperseded,
    SharedAnswer,
    SupersededAnswer,
    SupersededJudge,
)
from tests.fixtures.superseded_logs import FakeLog, lookup, written
from tests.sim import toy
from tests.unit.replication.lane.test_fourth_faults import offsets, retake
from tests.unit.replication.lane.test_rebuilding import LANE
from tests.unit.replication.lane.test_second_faults import BEGUN, Faulty, one, opened

# Other writers had a record at offset 0; the lane's ordinals 0 to 4 are at 1 to 5. Offset 6 is another writer's, too.
LOG = (OwnBatch(1, 5, 0, 0, 1),)
OTHERS = ((0, 1), (6, 7))


def read(
    play: Faulty,
    effects: Effects,
    shared: tuple[int, int],
    *,
    own: tuple[OwnBatch, ...] = LOG,
    others: tuple[tuple[int, int], ...] = OTHERS,
    compacts: bool | None = True,
) -> Effects:
    """Answer the questions about the target log. `shared`: the newest leader epoch up to that of the resume position,
    and its end."""
    while asked := [each for each in effects if isinstance(each, AskScan | AskShared)]:
        (each,) = asked
        if isinstance(each, AskShared):
            effects = play.tell(SharedAnswer(each.question, 0, *shared))
            continue
        left = tuple(batch for batch in own if batch.base_offset + batch.count > each.start)
        theirs = tuple((max(start, each.start), end) for start, end in others if end > each.start)
        effects = play.tell(ScanAnswer(each.question, 0, each.purpose, each.start, each.end, left, theirs, compacts))
    return effects


def judged(asked: AskSuperseded, keys: dict[int, bytes], *seen: tuple[int, bytes, int, int]) -> SupersededAnswer:
    """Answer a lookup. `seen` are the other records: offset, key, leader epoch, and sequence number (-1: of another
    writer)."""
    judge = SupersededJudge(asked)
    for missing in asked.missing:
        for ordinal in range(missing.first, missing.last + 1):
            judge.expect(missing, ordinal, ordinal, keys.get(ordinal, b"%d" % ordinal), 100)
    for offset, key, epoch, sequence in seen:
        judge.see(offset, key, 100, epoch, sequence)
    return judge.answer()


def again(answer: SupersededAnswer) -> set[int]:
    return {each for first, last in answer.again for each in range(first, last + 1)}


def chunk(question: int, *batches: tuple[int, int, int]) -> Chunk:
    data = bytearray()
    for first, last, epoch in batches:
        records = [(each, 100 + each) for each in range(first, last + 1)]
        data += toy.encode(first, last, records, newest_ms=1, leader_epoch=epoch)
    return Chunk(question, 0, 20, 20, 0, (), data, 0, len(data))


def bound(play: Faulty, effects: Effects) -> Effects:
    """Bind the facts, and return everything else, and what follows."""
    return [*(each for each in effects if not isinstance(each, Append)), *play.bind_all(effects)]


def copied(play: Faulty, effects: Effects, first: int = 5) -> list[int]:
    """Let the lane read a source whose epoch 0 ends at offset 7 and whose epoch 2 ends at 12. Return the source offsets
    that it takes to the ordinals from 5 on."""
    for _ in range(12):
        todo = [each for each in effects if isinstance(each, FetchFrom | AskDivergence | AskEnd)]
        effects = play.bind_all(effects)
        for each in todo:
            if isinstance(each, FetchFrom):
                if 0 <= each.last_epoch < 2 and each.position > 7:
                    answer = Chunk(each.question, 0, 12, 12, 0, (), bytearray(), 0, 0, None, 0, 7)
                elif each.position < 7:
                    answer = chunk(each.question, (each.position, 6, 0), (7, 11, 2))
                elif each.position < 12:
                    answer = chunk(each.question, (each.position, 11, 2))
                else:
                    continue
                effects += play.tell(answer)
            elif isinstance(each, AskDivergence):
                known = (2, 12) if each.epoch >= 2 else (0, 7)
                effects += play.tell(DivergenceAnswer(each.question, 0, *known))
            else:
                effects += play.tell(EndAnswer(each.question, 0, play.lane.log.end_epoch, play.lane.log.end))
    return offsets(play, first, play.lane.next_ordinal - 1)


def lost_five_to_nine(epochs: tuple[tuple[int, int], ...]) -> tuple[Faulty, Effects]:
    play = opened(SourceRun(LANE, 1, (Run(0, 0),), (), epochs), TargetRun(LANE, 1, 0, 1, 1))
    retake(play, 10, 11, 10, epoch=1)
    effects = read(play, play.ask_target(7, epoch=3), (1, 6))
    asked = one(effects, AskSuperseded)
    effects = play.tell(SupersededAnswer(asked.question, 0, ((5, 9),)))
    play.bind_all(effects)
    assert (play.lane.phase, play.lane.next_ordinal, play.lane.position) == (Phase.COPYING, 5, 5)
    return play, effects


def test_an_epoch_of_the_source_that_was_recorded_before_is_not_taken_for_other_records() -> None:
    """STALE VALUE. The source had a normal election at offset 8: ordinals 8, 9 are of epoch 1 in the ledger. The
    resume at 5 revokes that, and the records come in two chunks: 8 and 9 are the very same records. Another writer
    writes a newer value of 8 (epoch 3, after the lookup). The target's leader changes before anything is produced."""
    play, effects = lost_five_to_nine(((0, 0), (8, 1)))
    play.bind_all(play.tell(chunk(one(effects, FetchFrom).question, (5, 7, 0))))
    play.bind_all(play.tell(chunk(play.lane.asked, (8, 9, 1))))
    play.tell(TargetMoved(4))
    effects = read(play, play.ask_target(8, epoch=4), (3, 8), others=((0, 1), (6, 8)))
    found = [each for each in effects if isinstance(each, AskSuperseded)]
    assert found
    answer = judged(found[0], {8: b"key"}, (7, b"key", 3, -1))
    play.bind_all(play.tell(answer))
    assert play.lane.phase is Phase.COPYING
    assert 8 not in offsets(play, 5, 20)


def test_other_records_are_known_although_the_epochs_were_revoked() -> None:
    """LOSS. As above, but the source has lost offsets 7 to 9 and has other records of epoch 2 there, in one chunk."""
    play, effects = lost_five_to_nine(((0, 0), (8, 1)))
    play.bind_all(play.tell(chunk(one(effects, FetchFrom).question, (5, 6, 0), (7, 9, 2))))
    play.tell(TargetMoved(4))
    effects = read(play, play.ask_target(7, epoch=4), (3, 7))
    if asked := [each for each in effects if isinstance(each, AskSuperseded)]:
        effects = play.tell(judged(asked[0], {7: b"new", 8: b"new", 9: b"new"}, (6, b"new", 3, -1)))
    effects = bound(play, effects)
    assert play.lane.phase is Phase.COPYING
    assert {7, 8, 9} <= set(copied(play, effects))


def test_records_that_the_cleaner_removed_are_not_copied_again_after_clean_elections() -> None:
    """STALE VALUE and DOUBLE. The topic was compacted, and its cleaner removed ordinals 3 and 4: ordinals 8 and 9 have
    their keys. It is not compacted now. The lane resumed in epoch 1 after another writer's record at 10, and was idle:
    epoch 1 has no record, so the leader of epoch 2 (a clean election) answers with epoch 0. Nothing is lost."""
    play = opened(*BEGUN)
    retake(play, 10, 11, 10, epoch=1)
    own = (OwnBatch(0, 3, 0, 0, 0), OwnBatch(5, 5, 5, 0, 0))
    effects = read(play, play.ask_target(11, epoch=2), (0, 11), own=own, others=((10, 11),), compacts=False)
    if found := [each for each in effects if isinstance(each, AskSuperseded)]:
        answer = judged(found[0], {3: b"a", 4: b"b"}, (8, b"a", 0, 8), (9, b"b", 0, 9))
        assert again(answer) == set()
        effects = play.tell(answer)
    play.bind_all(effects)
    assert play.record.holes == ()


def test_displaced_ordinals_are_known_if_others_records_end_the_log() -> None:
    """STALE VALUE. Ordinals 0 to 9 were acknowledged in epoch 1. The leader of epoch 3 has 0 and 1, others' newer
    record of ordinals 2 to 4 at 3, a late batch of ordinals 5 to 11 at 4 to 10, and others' record at 11. The lane
    resumes there. An election removes the log from 4 on."""
    play = opened(BEGUN[0], TargetRun(LANE, 1, 0, 1, 1))
    retake(play, 10, 11, 10, epoch=1)
    log = (OwnBatch(1, 2, 0, 0, 1), OwnBatch(4, 7, 5, 0, 3))
    effects = read(play, play.ask_target(12, epoch=3), (1, 3), own=log, others=((0, 1), (3, 4), (11, 12)))
    asked = one(effects, AskSuperseded)
    assert [(each.first, each.last, each.leader_epoch) for each in asked.missing] == [(2, 4, 1)]
    effects = play.tell(judged(asked, dict.fromkeys((2, 3, 4), b"key"), (3, b"key", 3, -1)))
    play.bind_all(effects)
    check = one(effects, AskCheck)
    effects = play.tell(CheckAnswer(check.question, 0, check.first, check.last, "equal", "", 0, equal_until=12))
    play.bind_all(effects)
    assert (play.lane.phase, play.lane.next_ordinal) == (Phase.COPYING, 12)
    play.tell(TargetMoved(5))
    effects = read(play, play.ask_target(4, epoch=5), (3, 4), own=log[:1], others=((0, 1), (3, 4)))
    asked = one(effects, AskSuperseded)
    answer = judged(asked, dict.fromkeys((2, 3, 4), b"key"), (3, b"key", 3, -1))
    assert again(answer) == set(range(5, 12))


def test_a_displaced_ordinal_whose_newer_value_is_lost_is_copied_again() -> None:
    """LOSS. As above, but the newer record of ordinal 2 is the one at 11, and that at 3 is an unrelated one. The
    election removes the log from 4 on, and with it the only value of the key of ordinal 2."""
    play = opened(BEGUN[0], TargetRun(LANE, 1, 0, 1, 1))
    retake(play, 10, 11, 10, epoch=1)
    log = (OwnBatch(1, 2, 0, 0, 1), OwnBatch(4, 7, 5, 0, 3))
    effects = read(play, play.ask_target(12, epoch=3), (1, 3), own=log, others=((0, 1), (3, 4), (11, 12)))
    asked = one(effects, AskSuperseded)
    effects = play.tell(judged(asked, dict.fromkeys((2, 3, 4), b"key"), (11, b"key", 3, -1)))
    play.bind_all(effects)
    check = one(effects, AskCheck)
    effects = play.tell(CheckAnswer(check.question, 0, check.first, check.last, "equal", "", 0, equal_until=12))
    play.bind_all(effects)
    play.tell(TargetMoved(5))
    effects = read(play, play.ask_target(4, epoch=5), (3, 4), own=log[:1], others=((0, 1), (3, 4)))
    asked = one(effects, AskSuperseded)
    answer = judged(asked, dict.fromkeys((2, 3, 4), b"key"), (3, b"other", 3, -1))
    play.bind_all(play.tell(answer))
    assert 2 in {*offsets(play, 2, 20)}
    assert play.lane.next_ordinal == 2


def test_the_report_of_what_an_earlier_loss_left_to_copy_names_its_ordinals() -> None:
    """WRONG REPORT (cosmetic): "ordinals 5 to 4, which the target log lost earlier"."""
    play = opened(*BEGUN[:1], TargetRun(LANE, 1, 0, 1, 1))
    retake(play, 10, 11, 10, epoch=1)
    effects = read(play, play.ask_target(7, epoch=3), (1, 6))
    asked = one(effects, AskSuperseded)
    play.bind_all(play.tell(SupersededAnswer(asked.question, 0, ((5, 6), (8, 9)))))
    play.tell(TargetMoved(4))
    effects = read(play, play.ask_target(7, epoch=4), (3, 7))
    asked = one(effects, AskSuperseded)
    effects = play.tell(SupersededAnswer(asked.question, 0, ((5, 7),)))
    notes = [fact.note for each in effects for fact in getattr(each, "facts", ()) if hasattr(fact, "note")]
    assert not [each for each in notes if "5 to 4" in each or "from ordinal 5 to 5" in each]


@pytest.mark.asyncio
async def test_aborted_records_that_were_copied_uncommitted_are_not_planned() -> None:
    """NEEDLESS HALT. The user has changed `isolation` from read_uncommitted to read_committed. Offset 5 is of an
    aborted transaction and was copied. The target loses ordinals 5 to 9; another writer has a newer record of 7."""
    source = FakeLog(
        [written(0, "abcde"), written(5, "f", attributes=TRANSACTIONAL, aborted=True), written(6, "ghij")], 10, 10
    )
    target = FakeLog([written(6, "h")], 7, 7)
    play = opened(BEGUN[0], TargetRun(LANE, 1, 0, 1, 1))
    retake(play, 10, 11, 10, epoch=1)
    effects = read(play, play.ask_target(7, epoch=3), (1, 6))
    asked = one(effects, AskSuperseded)
    search = lookup(source, target, play.record, read_committed=play.lane.read_committed)
    # others' record at offset 6 is of epoch 3
    asked = msgspec.structs.replace(asked, missing=tuple(msgspec.structs.replace(e, above=6) for e in asked.missing))
    effects = play.tell(await search.run(asked))
    effects = play.bind_all(effects)
    if div := [each for each in effects if isinstance(each, AskDivergence)]:
        effects = play.tell(DivergenceAnswer(div[0].question, 0, 0, 10))
    fetch = one(effects, FetchFrom)
    assert play.lane.phase is Phase.COPYING
    effects = []
    if fetch.position == 5:
        data = bytearray(
            toy.encode(5, 5, [(5, 105)], newest_ms=1, leader_epoch=0, attributes=TRANSACTIONAL, producer=(77, 0, 0))
        )
    else:
        data = bytearray()
    data += toy.encode(6, 6, [(6, 106)], newest_ms=1, leader_epoch=0)
    effects = play.tell(Chunk(fetch.question, 0, 20, 20, 0, ((77, 5),), data, 0, len(data)))
    assert not [each for each in effects if isinstance(each, Halted)]


@pytest.mark.asyncio
async def test_a_record_that_the_source_has_instead_of_a_lost_one_is_not_looked_up() -> None:
    """LOSS. Both logs go back while the lane is away: the target has lost ordinals 5 to 9, and the source has lost
    offsets 7 to 9 and has other records there, of epoch 2, which were never copied. Another writer's record of the same
    key, from epoch 3, is no reason to leave them out."""
    new = written(7, "xxx")
    new = new._replace(header=new.header._replace(leader_epoch=2))
    theirs = written(6, "x")
    theirs = theirs._replace(header=theirs.header._replace(leader_epoch=3))
    source, target = FakeLog([written(0, "abcdefg"), new], 10, 10), FakeLog([theirs], 7, 7)
    play = opened(BEGUN[0], TargetRun(LANE, 1, 0, 1, 1))
    retake(play, 10, 11, 10, epoch=1)
    effects = read(play, play.ask_target(7, epoch=3), (1, 6))
    asked = one(effects, AskSuperseded)
    search = lookup(source, target, play.record)
    answer = await search.run(asked)
    effects = bound(play, play.tell(answer))
    assert {7, 8, 9} <= set(copied(play, effects))
