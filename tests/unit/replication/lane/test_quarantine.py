"""What a lane does with a batch that the target refuses for its content: it splits it, waits, and obeys commands."""

import msgspec
import pytest

from mirrord.config.schema import OnReject
from mirrord.kafka.protocol.errors import ErrorCode
from mirrord.kafka.protocol.record import DecodedRecord
from mirrord.kafka.protocol.record_batch import CODEC_MASK, HEADER, Header
from mirrord.kafka.records.record_decoding import decode
from mirrord.ledger.facts.base import Origin
from mirrord.ledger.facts.core import LaneHalted, LaneResumed
from mirrord.ledger.facts.quarantine import Quarantined, QuarantineReplayed, QuarantineSkipped
from mirrord.ledger.quarantine import BY_POLICY, KEPT, Parked, Quarantine, decide, go_on, lettered_from, park, waiting
from mirrord.ledger.standing_orders import Order
from mirrord.model.errors import ConfigError
from mirrord.model.names import LaneId
from mirrord.model.runs import Run
from mirrord.replication.lane.phases import Phase
from mirrord.replication.lane.second_path import RebuildRequest
from mirrord.replication.lane.signals import (
    Append,
    AppendFailed,
    AskConfigs,
    AskEnd,
    Chunk,
    ConfigsAnswer,
    Effects,
    Halted,
    Park,
    ParkAnswer,
    ProduceAnswer,
    Released,
    Wake,
    Woken,
)
from mirrord.replication.lane.source.batch_splitting import without_left_out
from mirrord.replication.lane.source.left_out_ranges import LeftOut
from mirrord.replication.lane.state import Lane, SplitLimit
from mirrord.replication.lane.step import step
from mirrord.supervision.rules.quarantine_orders import rule
from tests.fixtures.rebuilt import rebuild
from tests.unit.replication.host.test_batch_rebuild import BASE, batch
from tests.unit.replication.lane.test_answers import Record, copying, in_flight

LANE = LaneId("S.0.T")
GZIP, LZ4, ZSTD = 1, 3, 4
ORIGINALS = [DecodedRecord(BASE + at, 1_700_000_000_000, b"key", b"x" * 1_000, ()) for at in range(2)]
ADA = Origin("ada@host", "too large", 0)


def refused(error: ErrorCode, *, count: int = 0, on_reject: OnReject = "halt") -> tuple[Lane, Effects]:
    """A lane whose batch of the source offsets [0, 2) is refused; with a count the batch claims this many records."""
    lane, produce = in_flight()
    lane.on_reject = on_reject
    (batch,) = produce.batches
    batch.count = count or batch.count
    lane.refusal.configs_seen, lane.refusal.configs_since = "settings", -10.0  # in sync before it was sent
    effects = step(lane, 0.0, ProduceAnswer(produce.round, batch, error, -1))
    return lane, (step(lane, 0.0, settings_of(effects, "settings")) if asks_settings(effects) else effects)


def asks_settings(effects: Effects) -> list[AskConfigs]:
    return [each for each in effects if isinstance(each, AskConfigs)]


def settings_of(
    effects: Effects, seen: str, trouble: str = "", *, may_pass: bool = False, is_denied: bool = False
) -> ConfigsAnswer:
    (asked,) = asks_settings(effects)
    return ConfigsAnswer(asked.question, seen, trouble, may_pass, is_denied)


def facts_in(effects: Effects) -> list[object]:
    return [fact for effect in effects if isinstance(effect, Append) for fact in effect.facts]


def test_a_batch_that_is_too_large_is_rebuilt_in_halves() -> None:
    lane, effects = refused(ErrorCode.MESSAGE_TOO_LARGE)
    assert lane.phase is Phase.RESUMING
    assert any(isinstance(effect, AskEnd) for effect in effects)
    assert 0 < lane.refusal.largest < 100
    assert facts_in(effects) == []


def test_a_batch_with_a_record_that_is_refused_is_cut_in_halves() -> None:
    lane, _ = refused(ErrorCode.INVALID_RECORD)
    assert lane.refusal.split == SplitLimit(0, 2, 1)


def test_one_record_that_is_refused_stops_its_lane_before_it() -> None:
    lane, effects = refused(ErrorCode.MESSAGE_TOO_LARGE, count=1)
    assert lane.phase is Phase.HALTED
    (halted,) = [effect for effect in effects if isinstance(effect, Halted)]
    assert "the record at source offset 0 with Kafka error 10 (MESSAGE_TOO_LARGE)" in halted.line
    entry, fact = facts_in(effects)
    assert isinstance(entry, Quarantined)
    assert (entry.start, entry.end, entry.error, entry.skip) == (0, 1, 10, False)
    assert isinstance(fact, LaneHalted)
    assert (fact.reason, fact.start, fact.end) == ("rejected", 0, 1)


@pytest.mark.parametrize("error", [ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT])
def test_a_batch_without_a_codec_that_is_refused_for_its_format_waits_as_a_whole(error: ErrorCode) -> None:
    _, effects = refused(error)
    entry = facts_in(effects)[0]
    assert isinstance(entry, Quarantined)
    assert (entry.start, entry.end) == (0, 2)


def test_a_codec_that_is_refused_is_not_sent_again() -> None:
    lane, produce = in_flight()
    (sent,) = produce.batches
    sent.buffer[sent.start + 22] |= ZSTD
    effects = step(lane, 0.0, ProduceAnswer(produce.round, sent, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, -1))
    assert (lane.phase, lane.refusal.refused_codecs, facts_in(effects)) == (Phase.RESUMING, {ZSTD}, [])


def test_batches_of_a_refused_codec_are_rebuilt_and_others_stay_raw() -> None:
    lane, _ = copying()
    lane.rebuild, lane.refusal.refused_codecs = rebuild, frozenset({ZSTD})
    data = batch(ORIGINALS, LZ4) + batch(ORIGINALS, ZSTD, base_offset=BASE + 2)
    step(lane, 0.0, Chunk(lane.asked, 0, 9_999, 9_999, 0, (), data, 0, len(data)))
    made = list(lane.ready)
    headers = [Header(*HEADER.unpack_from(each.buffer, each.start)) for each in made]
    assert [(each.first, each.count, each.offset) for each in made] == [(0, 2, BASE), (2, 2, BASE + 2)]
    assert [header.base_sequence for header in headers] == [0, 2]
    assert [header.attributes & CODEC_MASK for header in headers] == [LZ4, LZ4]
    assert (lane.raw_batches, lane.rebuilt_batches) == (1, {"codec": 1})
    copies = decode(made[1].buffer, made[1].start, made[1].end)
    assert [each[1:] for each in copies] == [each[1:] for each in decode(batch(ORIGINALS), 0, 1 << 20)]


def test_the_codec_that_replaces_a_refused_one() -> None:
    data = batch(ORIGINALS, ZSTD)
    used: list[int] = []
    for refused_codecs in ({ZSTD}, {ZSTD, LZ4}, {ZSTD, LZ4, GZIP}, {LZ4}):
        made = rebuild(RebuildRequest(data, 0, len(data), BASE, 7, 0, 0, refused_codecs=frozenset(refused_codecs)))
        assert made is not None
        used.append(Header(*HEADER.unpack_from(made.data, 0)).attributes & CODEC_MASK)
    assert used == [LZ4, GZIP, 0, ZSTD]


def parking(*, failures: int = 0) -> tuple[Lane, Park]:
    """A lane whose record is to be parked, after this many failed attempts."""
    lane, effects = refused(ErrorCode.INVALID_TIMESTAMP, count=1, on_reject="skip")
    for at in range(failures):
        effects = step(lane, 10.0 * at, ParkAnswer(asked_to_park(effects).question, -1, "it is full"))
        (wake,) = [each for each in effects if isinstance(each, Wake)]
        effects = step(lane, wake.at, Woken(wake.question))
    return lane, asked_to_park(effects)


def asked_to_park(effects: Effects) -> Park:
    (park,) = [each for each in effects if isinstance(each, Park)]
    return park


def test_by_policy_it_is_left_out_once_it_is_parked() -> None:
    lane, effects = refused(ErrorCode.INVALID_TIMESTAMP, count=1, on_reject="skip")
    assert (facts_in(effects), lane.phase) == ([], Phase.HALTED)
    asked = asked_to_park(effects)
    assert (asked.offset, asked.behind, len(asked.data) > 61) == (0, -1, True)
    effects = step(lane, 1.0, ParkAnswer(asked.question, 7))
    (entry,) = facts_in(effects)
    assert isinstance(entry, Quarantined)
    assert (entry.start, entry.end, entry.skip, entry.letters, entry.letters_at) == (0, 1, True, 1, 7)
    assert step(lane, 1.0, ParkAnswer(asked.question, 7)) == []
    assert [type(fact) for fact in facts_in(step(lane, 1.0, Released()))] == [LaneResumed]
    assert (lane.phase, lane.halt.line, lane.refusal.parking) == (Phase.RESUMING, "", None)


def test_a_record_that_cannot_be_parked_waits_is_reported_once_and_retried() -> None:
    lane, effects = refused(ErrorCode.INVALID_TIMESTAMP, count=1, on_reject="skip")
    effects = step(lane, 1.0, ParkAnswer(asked_to_park(effects).question, -1, "it is full"))
    entry, halted = facts_in(effects)
    assert isinstance(entry, Quarantined)
    assert isinstance(halted, LaneHalted)
    assert (entry.skip, entry.letters) == (False, -1)
    assert halted.line.endswith("it currently cannot be parked, so it is not skipped: it is full")
    pauses: list[float] = []
    for at in range(1, 8):
        (wake,) = [each for each in effects if isinstance(each, Wake)]
        asked = asked_to_park(step(lane, wake.at, Woken(wake.question)))
        effects = step(lane, wake.at, ParkAnswer(asked.question, -1, f"it is full {at}"))
        assert facts_in(effects) == []
        assert lane.halt.line.endswith(f"it is full {at}")
        pauses += [each.at - wake.at for each in effects if isinstance(each, Wake)]
    assert pauses == [10.0, 20.0, 40.0, 60.0, 60.0, 60.0, 60.0]
    lane, asked = parking(failures=3)
    (entry,) = facts_in(step(lane, 100.0, ParkAnswer(asked.question, 7)))
    assert isinstance(entry, Quarantined)
    assert entry.letters == 1


def test_a_command_lets_a_lane_continue_whose_record_is_being_parked() -> None:
    lane, asked = parking(failures=1)
    assert [type(fact) for fact in facts_in(step(lane, 1.0, Released()))] == [LaneResumed]
    assert step(lane, 1.0, ParkAnswer(asked.question, 7)) == []
    assert (lane.phase, lane.refusal.parking, lane.refusal.parking_pause) == (Phase.RESUMING, None, -1)


def test_the_failure_to_park_is_recorded_again_until_the_ledger_has_it() -> None:
    lane, asked = parking()
    effects = step(lane, 1.0, ParkAnswer(asked.question, -1, "it is full"))
    (entry,) = [each for each in effects if isinstance(each, Append)]
    (again,) = step(lane, 1.0, AppendFailed(entry.tag, None))
    assert isinstance(again, Wake)
    assert [type(fact) for fact in facts_in(step(lane, again.at, Woken(again.question)))] == [Quarantined, LaneHalted]


@pytest.mark.parametrize("error", [ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT])
def test_a_batch_is_split_into_records_before_they_are_parked(error: ErrorCode) -> None:
    lane, effects = refused(error, on_reject="skip")
    assert (lane.refusal.split, lane.phase, facts_in(effects)) == (SplitLimit(0, 2, 1), Phase.RESUMING, [])


def test_a_record_that_the_source_does_not_return_is_not_parked_and_waits() -> None:
    lane, _ = copying()
    lane.on_reject = "skip"
    effects = step(lane, 0.0, Chunk(lane.asked, int(ErrorCode.CORRUPT_MESSAGE), 9, 9, 0, (), bytearray(), 0, 0))
    entry, halted = facts_in(effects)
    assert isinstance(entry, Quarantined)
    assert isinstance(halted, LaneHalted)
    assert not entry.skip
    assert "and these cannot be parked" in halted.line


def test_by_policy_it_is_left_out_at_once_where_nothing_is_to_be_parked() -> None:
    lane, effects = refused(ErrorCode.INVALID_TIMESTAMP, count=1, on_reject="skip-unparked")
    (entry,) = facts_in(effects)
    assert isinstance(entry, Quarantined)
    assert (entry.skip, entry.letters) == (True, -1)
    effects = step(lane, 1.0, Released())
    assert [type(fact) for fact in facts_in(effects)] == [LaneResumed]
    assert lane.phase is Phase.RESUMING
    assert not lane.halt.line


def test_a_refusal_that_concerns_no_single_record_halts_the_lane() -> None:
    lane, effects = refused(ErrorCode.INVALID_PRODUCER_EPOCH)
    assert lane.phase is Phase.HALTED
    assert [type(fact) for fact in facts_in(effects)] == [LaneHalted]


def test_a_decision_for_a_lane_that_does_not_wait_changes_nothing() -> None:
    lane, _ = in_flight()
    assert step(lane, 0.0, Released()) == []


def plan(
    lane: Lane, *jumps: Run, left_out: list[tuple[int, int]], epoch: int = -1
) -> tuple[list[Run], list[tuple[int, int, int]], list[tuple[int, int]]]:
    lane.next_ordinal, lane.position, lane.left_out = 50, 10, [LeftOut(*each, "rejected", epoch) for each in left_out]
    lane.plan.extend(jumps)
    rest = without_left_out(lane)
    assert all(each.reason == "rejected" for each in rest.gone)
    return rest.runs, rest.pieces, [(each.start, each.end) for each in rest.gone]


def test_skipped_records_shift_the_ordinals_of_a_plan() -> None:
    # Ordinals 50 to 54 belong to the offsets 10 to 14, 55 to 57 to 30 to 32, and 58 continues at 100.
    jumps = (Run(55, 30), Run(58, 100))
    lane = in_flight()[0]
    assert plan(lane, *jumps, left_out=[(12, 13), (31, 40)]) == (
        [Run(50, 10), Run(52, 13), Run(54, 30), Run(55, 100)],
        [(50, 50, 2), (52, 53, 2), (54, 55, 1), (55, 58, 1)],
        [(12, 13), (31, 33)],
    )
    assert plan(in_flight()[0], *jumps, left_out=[(10, 15), (100, 105)]) == (
        [Run(50, 30), Run(53, 105)],
        [(50, 55, 3), (53, 58, 1)],
        [(10, 15), (100, 105)],
    )
    assert plan(in_flight()[0], *jumps, left_out=[(0, 10), (15, 30), (99, 100)])[2] == []


@pytest.mark.parametrize(("epoch", "gone"), [(3, []), (4, [(12, 13)]), (5, []), (-1, [(12, 13), (100, 105)])])
def test_only_records_of_the_refused_epoch_are_left_out_of_a_plan(epoch: int, gone: list[tuple[int, int]]) -> None:
    """LOSS. The source has another record at the offset of one that the target has refused. Which record it has where
    the plan ends, the lane has yet to read."""
    lane = in_flight()[0]
    assert isinstance(lane.record, Record)
    lane.record.epochs = ((0, 3), (52, 4), (55, -1))
    assert plan(lane, Run(55, 100), left_out=[(12, 13), (100, 105)], epoch=epoch)[2] == gone


WAITS: Quarantine = (Parked(5, 6, 10, "refused"),)
ENDS = {LANE: 9}


def test_orders_about_what_waits() -> None:
    skipped = decide(WAITS, QuarantineSkipped(LANE, 5, 9, ADA))
    assert skipped == (Parked(5, 9, 10, "refused", ADA),)
    assert decide(skipped or (), QuarantineSkipped(LANE, 5, 9, ADA)) is None
    assert decide(WAITS, QuarantineSkipped(LANE, 6, 9, ADA)) is None
    assert decide(WAITS, QuarantineReplayed(LANE, 5, 6, ADA)) == ()
    assert go_on(WAITS) == ()
    assert waiting(skipped or ()) is None


def test_the_fact_about_skipped_records_says_whether_they_are_parked() -> None:
    order = Order(verb="skip", name="orders-0", offset=5, until=7, by="ada@host", letters=2)
    fact = rule("skip", order, "orders-0", {LANE: WAITS}, ADA, ENDS).fact
    assert fact == QuarantineSkipped(LANE, 5, 7, ADA, 2)
    assert isinstance(fact, QuarantineSkipped)
    assert decide(WAITS, fact) == (Parked(5, 7, 10, "refused", ADA, 2),)
    with pytest.raises(ConfigError, match="letters: found 3; allowed: -1 to 2"):
        rule("skip", msgspec.structs.replace(order, letters=3), "orders-0", {LANE: WAITS}, ADA, ENDS)


def test_adjacent_records_skipped_by_policy_are_one_entry_and_the_number_of_entries_is_limited() -> None:
    quarantine: Quarantine = ()
    for at in (0, 1, 2, 7):
        quarantine = park(quarantine, Quarantined(LANE, 1, at, at + 1, 87, "no key", skip=True))
    assert [(each.start, each.end, each.skipped) for each in quarantine] == [(0, 3, BY_POLICY), (7, 8, BY_POLICY)]
    for at in range(10, 10 + 4 * KEPT, 2):
        quarantine = park(quarantine, Quarantined(LANE, 1, at, at + 1, 87, "no key", skip=True))
    assert len(quarantine) == KEPT


def test_records_of_several_source_epochs_are_several_entries() -> None:
    """The source may lose some of them, and the decision on the others stays in effect."""
    quarantine: Quarantine = ()
    for at, epoch in ((0, 3), (1, 3), (2, 5)):
        quarantine = park(quarantine, Quarantined(LANE, 1, at, at + 1, 87, "no key", skip=True, epoch=epoch))
    assert [(each.start, each.end, each.epoch) for each in quarantine] == [(0, 2, 3), (2, 3, 5)]
    waits = park(quarantine, Quarantined(LANE, 1, 5, 6, 10, "refused", epoch=7))
    for end, epoch in ((6, 7), (7, -1)):
        decided = decide(waits, QuarantineSkipped(LANE, 5, end, ADA))
        assert decided is not None
        assert decided[-1].epoch == epoch


def test_letters_of_a_row_are_counted_and_the_first_is_known() -> None:
    def left_out(at: int, letters: int, letters_at: int) -> Quarantined:
        return Quarantined(LANE, 1, at, at + 1, 87, "no key", skip=True, letters=letters, letters_at=letters_at)

    quarantine = park((), left_out(0, -1, -1))
    assert lettered_from(quarantine) == -1
    for fact in (left_out(1, 1, 20), left_out(2, 1, 22), left_out(1, 1, 20), left_out(2, 1, 22)):
        quarantine = park(quarantine, fact)
    row = Parked(1, 3, 87, "no key", BY_POLICY, 2, 20)
    assert quarantine == (Parked(0, 1, 87, "no key", BY_POLICY), row)
    waits = park(quarantine, Quarantined(LANE, 1, 5, 6, 10, "refused"))
    assert lettered_from(waits) == 20
    skipped = decide(waits, QuarantineSkipped(LANE, 5, 6, ADA, 1, 24))
    assert skipped is not None
    assert lettered_from(skipped) == 24


def test_which_entry_an_order_means() -> None:
    def order(offset: int, until: int = -1) -> Order:
        return Order(verb="skip", name="orders-0", offset=offset, until=until, by="ada@host")

    def refusal(offset: int, quarantine: Quarantine, verb: str = "skip", until: int = -1) -> str:
        try:
            rule(
                "skip" if verb == "skip" else "replay", order(offset, until), "orders-0", {LANE: quarantine}, ADA, ENDS
            )
        except ConfigError as error:
            return str(error)
        return ""

    assert rule("skip", order(5), "orders-0", {LANE: WAITS}, ADA, ENDS).fact == QuarantineSkipped(LANE, 5, 6, ADA)
    assert rule("skip", order(5, 9), "orders-0", {LANE: WAITS}, ADA, ENDS).fact == QuarantineSkipped(LANE, 5, 9, ADA)
    assert rule("replay", order(5), "orders-0", {LANE: WAITS}, ADA, ENDS).fact == QuarantineReplayed(LANE, 5, 6, ADA)
    decided: Quarantine = (Parked(5, 6, 10, "refused", ADA),)
    assert rule("skip", order(5), "orders-0", {LANE: decided}, ADA, ENDS).fact is None
    assert "cannot be tried again" in refusal(5, decided, "replay")
    assert refusal(7, WAITS) == "orders-0 is not waiting at source offset 7: it is waiting at source offsets [5, 6)"
    assert refusal(7, ()) == "orders-0 is not waiting at source offset 7: it is not waiting for a decision"
    allowed = "allowed: 6, where the entry of orders-0 ends"
    assert refusal(5, WAITS, until=5) == f"--until: found 5; {allowed}, to 9, where the source ends"
    assert refusal(5, WAITS, until=10) == f"--until: found 10; {allowed}, to 9, where the source ends"
    for end, why in ((-1, "where the source ends is currently not known"), (6, "the source also ends there")):
        with pytest.raises(ConfigError) as raised:
            rule("skip", order(5, 7), "orders-0", {LANE: WAITS}, ADA, {LANE: end})
        assert str(raised.value) == f"--until: found 7; {allowed}; {why}"


def test_a_record_that_is_still_sent_again_waits_for_no_decision_yet() -> None:
    order = Order(verb="skip", name="orders-0", offset=5, by="ada@host")
    for note, why in (("refused; it is sent again", " (refused; it is sent again)"), ("", "")):
        with pytest.raises(ConfigError) as raised:
            rule("skip", order, "orders-0", {}, ADA, ENDS, note)
        assert str(raised.value) == (
            "orders-0 is not waiting at source offset 5: it is not waiting for a decision, "
            f"but is still being retried{why}; try again in a few seconds"
        )
    # If it waits for a decision elsewhere, that is what counts.
    with pytest.raises(ConfigError, match=r"it is waiting at source offsets \[5, 6\)$"):
        rule("skip", Order(verb="skip", name="orders-0", offset=7, by="a@b"), "orders-0", {LANE: WAITS}, ADA, ENDS, "")


def unsynced(on_reject: OnReject) -> tuple[Lane, Effects]:
    """A lane whose only record is refused, before anything is known of the configs."""
    lane, produce = in_flight()
    lane.on_reject = on_reject
    (batch,) = produce.batches
    batch.count = 1
    return lane, step(lane, 20.0, ProduceAnswer(produce.round, batch, ErrorCode.MESSAGE_TOO_LARGE, -1))


@pytest.mark.parametrize("on_reject", ["halt", "skip", "skip-unparked"])
def test_a_record_is_sent_again_when_the_settings_were_not_known_in_sync_before(on_reject: OnReject) -> None:
    lane, effects = unsynced(on_reject)
    assert [each.sync for each in asks_settings(effects)] == [True]
    assert facts_in(effects) == []
    effects = step(lane, 20.0, settings_of(effects, "other"))
    assert facts_in(effects) == []
    assert [each.at for each in effects if isinstance(each, Wake)] == [20.5]
    assert (lane.phase, lane.refusal.configs_seen) == (Phase.WAITING, "other")


@pytest.mark.parametrize("seen", ["", "settings"])
def test_by_policy_nothing_is_left_out_while_settings_may_still_be_altered(seen: str) -> None:
    lane, effects = unsynced("skip")
    lane.refusal.configs_seen = "settings"
    effects = step(lane, 20.0, settings_of(effects, seen, "ALTER_CONFIGS is missing", may_pass=True))
    assert facts_in(effects) == []
    assert lane.phase is Phase.WAITING
    assert lane.trouble.endswith("ALTER_CONFIGS is missing")
    assert [each.at for each in effects if isinstance(each, Wake)] == [25.0]


def test_a_lane_halts_if_it_may_not_read_the_settings_and_resumes_once_it_may() -> None:
    lane, effects = unsynced("halt")
    lane.refusal.configs_seen = "settings"
    effects = step(lane, 20.0, settings_of(effects, "", "AUTHORIZATION", may_pass=True, is_denied=True))
    assert [type(each) for each in facts_in(effects)] == [Quarantined, LaneHalted]
    (wake,) = [each for each in effects if isinstance(each, Wake)]
    effects = step(lane, wake.at, Woken(wake.question))
    effects = step(lane, wake.at, settings_of(effects, "settings"))
    assert [type(each) for each in facts_in(effects)] == [LaneResumed]


def test_a_lane_does_not_halt_if_nobody_answers_for_the_settings() -> None:
    lane, effects = unsynced("halt")
    effects = step(lane, 20.0, settings_of(effects, "", "no answer", may_pass=True))
    assert facts_in(effects) == []
    assert lane.phase is Phase.WAITING


def test_settings_that_the_target_does_not_take_are_named() -> None:
    lane, effects = unsynced("halt")
    lane.refusal.configs_seen = "settings"
    effects = step(lane, 20.0, settings_of(effects, "settings", "max.message.bytes: 5 → 9 is refused"))
    entry, halted = facts_in(effects)
    assert isinstance(entry, Quarantined)
    assert isinstance(halted, LaneHalted)
    assert halted.line.endswith("max.message.bytes: 5 → 9 is refused")


def test_a_halted_lane_resumes_when_the_settings_change() -> None:
    lane, effects = refused(ErrorCode.MESSAGE_TOO_LARGE, count=1)
    pauses: list[float] = []
    for _ in range(6):
        (wake,) = [each for each in effects if isinstance(each, Wake)]
        effects = step(lane, wake.at, Woken(wake.question))
        assert [each.sync for each in asks_settings(effects)] == [False]
        effects = step(lane, wake.at, settings_of(effects, "settings"))
        pauses += [each.at - wake.at for each in effects if isinstance(each, Wake)]
    assert pauses == [10.0, 20.0, 40.0, 60.0, 60.0, 60.0]
    (wake,) = [each for each in effects if isinstance(each, Wake)]
    effects = step(lane, 500.0, Woken(wake.question))
    effects = step(lane, 500.0, settings_of(effects, "others"))
    assert [type(fact) for fact in facts_in(effects)] == [LaneResumed]
    assert (lane.phase, lane.halt.line) == (Phase.RESUMING, "")
