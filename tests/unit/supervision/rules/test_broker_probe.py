"""The probe's judgement: each rule that a target breaks is named, and no others."""

from collections.abc import Callable, Sequence

import msgspec
import pytest

from mirrord.kafka.protocol.errors import ErrorCode
from mirrord.ledger.facts.core import TargetProbed
from mirrord.model.names import ClusterId
from mirrord.supervision.broker_probe import fingerprint
from mirrord.supervision.rules import broker_probe
from mirrord.supervision.rules.broker_probe import (
    RECORDS,
    STEPS,
    Judgement,
    Observed,
    ProbeAnswer,
    ProbeStep,
    Stored,
    guarantee,
    judge,
    mode,
)

START = 100
OLD = len(STEPS) - 1

Change = Callable[[Observed], Observed]


def kept() -> Observed:
    """What a broker that keeps all rules shows."""
    answers: list[ProbeAnswer] = []
    stored: list[Stored] = []
    stands: dict[tuple[int, int], int] = {}
    last: dict[int, int] = {}
    for step in STEPS:
        match step.fate:
            case "taken":
                base = START + RECORDS * len(stored)
                stands[step.producer, step.sequence] = base
                last[step.producer] = (step.sequence + RECORDS - 1) % 2**31
                stored.append(Stored(base, RECORDS, step.producer, 0, step.sequence, True, False))
                answers.append(ProbeAnswer(0, base))
            case "known":
                answers.append(ProbeAnswer(0, stands[step.producer, step.sequence]))
            case "refused":
                answers.append(ProbeAnswer(step.errors[0], -1))
    return Observed(START, answers, last, START + RECORDS * len(stored), stored)


def answered(number: int, error: int, base_offset: int = -1) -> Change:
    """Another answer to a step; nothing is appended."""

    def change(seen: Observed) -> Observed:
        answers = list(seen.answers)
        answers[number] = ProbeAnswer(error, base_offset)
        return msgspec.structs.replace(seen, answers=answers)

    return change


def appended(number: int) -> Change:
    """A step that must not append appends."""

    def change(seen: Observed) -> Observed:
        before = sum(step.fate == "taken" for step in STEPS[:number])
        base = START + RECORDS * before
        step = STEPS[number]
        stored = [*seen.stored[:before], Stored(base, RECORDS, step.producer, 0, step.sequence, True, False)]
        stored += [each._replace(base_offset=each.base_offset + RECORDS) for each in seen.stored[before:]]
        answers = [*seen.answers[:number], ProbeAnswer(0, base)]
        for later, answer in zip(STEPS[number + 1 :], seen.answers[number + 1 :], strict=True):
            moved = answer.error == 0 and (later.fate == "taken" or answer.base_offset >= base)
            answers.append(answer._replace(base_offset=answer.base_offset + RECORDS) if moved else answer)
        return msgspec.structs.replace(seen, answers=answers, stored=stored, end=seen.end + RECORDS)

    return change


def broken(found: Judgement) -> list[str]:
    """The rules that were named."""
    assert not found.disturbed
    return [line.removeprefix("not met: ").partition(" (")[0] for line in found.failures]


def test_who_keeps_all_rules_passes() -> None:
    assert judge(kept()) == Judgement((), (), disturbed=False)


@pytest.mark.parametrize("number", [at for at, step in enumerate(STEPS) if step.fate == "refused"])
def test_what_must_be_refused_and_is_appended_is_named(number: int) -> None:
    found = judge(appended(number)(kept()))
    assert STEPS[number].rule in broken(found)
    line = next(line for line in found.failures if STEPS[number].rule in line)
    assert "the answer is offset" in line


def test_a_repeat_that_is_appended_again_is_named() -> None:
    (number,) = (at for at, step in enumerate(STEPS) if step.fate == "known")
    assert broken(judge(appended(number)(kept()))) == [STEPS[number].rule]


@pytest.mark.parametrize("number", [at for at, step in enumerate(STEPS) if step.fate == "known"])
def test_a_repeat_that_is_not_answered_with_its_offset_is_named(number: int) -> None:
    for answer in (ProbeAnswer(0, -1), ProbeAnswer(ErrorCode.DUPLICATE_SEQUENCE_NUMBER, -1)):
        assert broken(judge(answered(number, *answer)(kept()))) == [STEPS[number].rule]


@pytest.mark.parametrize("number", [at for at, step in enumerate(STEPS) if step.fate == "refused"])
def test_a_refusal_with_another_reason_is_named(number: int) -> None:
    found = judge(answered(number, ErrorCode.INVALID_RECORD)(kept()))
    assert broken(found) == [STEPS[number].rule]
    assert "INVALID_RECORD" in found.failures[0]


@pytest.mark.parametrize("number", [at for at, step in enumerate(STEPS) if step.fate == "taken"])
def test_what_must_be_taken_and_is_refused_is_named_first(number: int) -> None:
    assert broken(judge(answered(number, ErrorCode.INVALID_RECORD)(kept())))[0] == STEPS[number].rule


def test_an_older_broker_may_say_duplicate() -> None:
    (number,) = (at for at, step in enumerate(STEPS) if "too old" in step.rule)
    assert broken(judge(answered(number, ErrorCode.DUPLICATE_SEQUENCE_NUMBER)(kept()))) == []


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"last_sequences": None}, broker_probe.TELLS),
        ({"last_sequences": {0: 5, 1: 5_000_002}}, broker_probe.TELLS),
        ({"last_sequences": {0: 5, 1: 5_000_002, 2: 14, 3: 2}}, broker_probe.TELLS),
        ({"end": START}, broker_probe.ENDS),
        ({"stored": ()}, broker_probe.KEEPS),
    ],
)
def test_what_is_answered_and_stored_wrongly_is_named(changes: dict[str, object], rule: str) -> None:
    assert broken(judge(msgspec.structs.replace(kept(), **changes))) == [rule]


def test_lost_producers_and_sequences_are_named() -> None:
    for wrong in ({"epoch": 1}, {"sequence": 0}, {"records": RECORDS + 1}):
        stored = [each._replace(**wrong) if at == 4 else each for at, each in enumerate(kept().stored)]
        assert broken(judge(msgspec.structs.replace(kept(), stored=stored))) == [broker_probe.KEEPS]


def test_what_is_allowed_is_remarked() -> None:
    stored = [each._replace(same_records=False, append_time=True) for each in kept().stored]
    found = judge(msgspec.structs.replace(kept(), stored=stored))
    assert found.failures == ()
    assert [line.partition(" (")[2].partition(")")[0] for line in found.remarks] == [
        "compression.type",
        "message.timestamp.type",
    ]


def test_old_records_may_be_forgotten_at_once_or_refused() -> None:
    seen = kept()
    assert seen.last_sequences is not None
    forgotten = {
        number: last_sequence for number, last_sequence in seen.last_sequences.items() if number != STEPS[OLD].producer
    }
    assert judge(msgspec.structs.replace(seen, last_sequences=forgotten)).failures == ()
    refused = answered(OLD, ErrorCode.INVALID_TIMESTAMP)(seen)
    refused = msgspec.structs.replace(
        refused, stored=seen.stored[:-1], end=seen.end - RECORDS, last_sequences=forgotten
    )
    found = judge(refused)
    assert found.failures == ()
    assert "message.timestamp.before.max.ms" in found.remarks[0]


def test_records_of_somebody_else_leave_it_open() -> None:
    stored = [*kept().stored, Stored(0, 1, -1, 0, 0, False, False)]
    assert judge(msgspec.structs.replace(kept(), stored=stored)) == Judgement((), (), disturbed=True)


def test_the_steps_need_no_more_producers_than_are_asked_for() -> None:
    assert {step.producer for step in STEPS} == set(range(broker_probe.PRODUCERS))
    taken = [step for step in STEPS if step.fate == "taken"]
    assert _of(taken, 2)[-1].sequence - _of(taken, 2)[1].sequence == 4 * RECORDS, "five batches behind the first"


def _of(steps: Sequence[ProbeStep], producer: int) -> list[ProbeStep]:
    return [step for step in steps if step.producer == producer]


def test_what_a_flow_promises() -> None:
    passed = TargetProbed(ClusterId("us"), "v", passed=True)
    remarked = msgspec.structs.replace(passed, remarks=("it recompresses",))
    failed = TargetProbed(ClusterId("us"), "v", passed=False, failures=("not met: a gap is refused",))
    assert guarantee(None) == (None, "")
    assert guarantee(passed) == ("exactly-once", "")
    assert guarantee(remarked) == ("exactly-once", "it recompresses")
    assert guarantee(None, "no right") == ("exactly-once", "not probed: no right")
    assert guarantee(failed) == ("at-least-once", "not met: a gap is refused")
    assert guarantee(failed, "no right") == ("at-least-once", "not met: a gap is refused; not probed: no right")
    assert [mode(each) for each in (None, passed, failed)] == ["sequence", "sequence", "at-least-once"]


def test_brokers_are_distinguished_by_what_they_offer() -> None:
    old, new = {0: (0, 12), 1: (0, 15)}, {0: (3, 13), 1: (4, 18), 2: (1, 1)}
    assert fingerprint([old, dict(reversed(old.items()))]) == fingerprint([old])
    assert fingerprint([new, old]) == fingerprint([old, new, old, {}])
    assert len({fingerprint([old]), fingerprint([new]), fingerprint([old, new])}) == 3
    assert fingerprint([new]).startswith("3 APIs ")
