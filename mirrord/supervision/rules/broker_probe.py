"""The probe of a target's brokers: the batches that it sends, and the judgment of the brokers' answers.

Exactly-once delivery depends on how a broker handles sequences, offsets and checksums. The page
docs/explanation/broker-behaviour.md lists the rules for this, and `tests/sim/contract.py` checks all of them against
Kafka. Other products also implement Kafka's protocol, and a later version of Kafka may behave differently. Therefore,
for each set of brokers, the batches in `STEPS` are sent once to a topic with one partition, and the answers are
compared with the behavior that a lane relies on.

A probe cannot observe two properties. The first is how long a broker remembers a producer. A broker config determines
this time, and lanes request the value of the config from the broker. The second is durability across a crash, which
only the tests check.
"""

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

import msgspec

from mirrord.kafka.protocol.errors import ErrorCode
from mirrord.ledger.facts.core import Mode, TargetProbed
from mirrord.model.status import Guarantee

RECORDS = 3
"""Number of records in each batch."""
OLD_MS = 10 * 86_400_000
"""Age in milliseconds of the old records that the last step of the probe sends. It is longer than the time for which
brokers remember a producer."""
PRODUCERS = 4
"""Number of producers in the steps of the probe. Each of them has a new producer id."""
_LAST_SEQUENCE = 2**31 - 1
_ACROSS = _LAST_SEQUENCE - 1
_ANYTHING = 5_000_000
_OUT_OF_ORDER = (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
_CORRUPT = (ErrorCode.CORRUPT_MESSAGE,)

Fate = Literal["taken", "known", "refused"]
"""Required outcome of a batch. "taken": it is appended at the end of the log. "known": it is recognized as a repeated
batch, and the answer contains the offset of the first attempt. "refused": it is not appended."""


class ProbeStep(NamedTuple):
    """One batch of the probe, and its required outcome."""

    rule: str
    producer: int
    """Number of the producer, counted from 0. Each producer has a producer id that has never been used before."""
    sequence: int
    fate: Fate = "taken"
    errors: tuple[int, ...] = ()
    """The error codes with which the batch may be refused."""
    connection: int = 0
    """Number of the connection over which the batch is sent, 0 or 1. Both connections lead to the partition leader."""
    age_ms: int = 0
    damaged: bool = False
    """Whether one bit of the last record is flipped, so that the checksum of the batch is wrong."""


STEPS = (
    ProbeStep("a batch with a wrong checksum is refused", 0, 0, "refused", _CORRUPT, damaged=True),
    ProbeStep("after a refused first batch, the next one is appended at the end of the log", 0, RECORDS),
    ProbeStep("a batch before the last one is refused", 0, 0, "refused", _OUT_OF_ORDER),
    ProbeStep("without state of a producer, any sequence is accepted", 1, _ANYTHING),
    ProbeStep("a batch may span the last sequence", 2, _ACROSS),
    ProbeStep("after the last sequence comes 0, also over another connection", 2, 1, connection=1),
    ProbeStep("a repeat of the last batch is recognized and not appended", 2, 1, "known"),
    ProbeStep("a gap is refused", 2, 1 + 2 * RECORDS, "refused", _OUT_OF_ORDER, connection=1),
    *(ProbeStep("the next batch is accepted", 2, 1 + number * RECORDS) for number in range(1, 5)),
    ProbeStep("a repeat that is too old to be recognized is refused", 2, _ACROSS, "refused", _OUT_OF_ORDER),
    ProbeStep("records with old timestamps are accepted", 3, 0, age_ms=OLD_MS),
)
TELLS = "the brokers report the last sequence of a producer"
ENDS = "the end of the log is reported"
KEEPS = "stored batches keep their producer and sequence"
_OLD = STEPS[-1]


class ProbeAnswer(NamedTuple):
    """A broker's answer to one batch."""

    error: int
    base_offset: int


class Stored(NamedTuple):
    """A batch that the probe has read back from the log."""

    base_offset: int
    records: int
    producer: int
    """Number of the producer of the batch, or -1 if another client wrote the batch."""
    epoch: int
    sequence: int
    same_records: bool
    """Whether the records in the log have the same bytes as the records that were sent."""
    append_time: bool


class Observed(msgspec.Struct, frozen=True):
    """The responses and the log contents that a probe has observed."""

    start: int
    """The end offset of the log before the probe."""
    answers: Sequence[ProbeAnswer]
    """The answers to the batches of `STEPS`, in the same order."""
    last_sequences: Mapping[int, int] | None
    """The last sequence number of each producer that the partition leader remembers, by the number of the producer.
    None if the leader does not support the request for this information (DescribeProducers)."""
    end: int
    stored: Sequence[Stored]


class Judgement(NamedTuple):
    """The result of a probe: one line for each broken rule, and one line for each permitted deviation that an operator
    should know about.

    The target has passed the probe if `failures` is empty.
    """

    failures: tuple[str, ...]
    remarks: tuple[str, ...]
    disturbed: bool
    """Whether another client has written to the probe's topic, so that no judgment is possible."""


def judge(seen: Observed) -> Judgement:
    """Compare the answers with the behavior that lanes rely on. Each broken rule is reported once.

    The expected offsets are computed from the actual answers to earlier steps, so that one wrong answer does not make
    the answers to all later steps look wrong.
    """
    if any(batch.producer < 0 for batch in seen.stored):
        return Judgement((), (), disturbed=True)
    failures: dict[str, str] = {}
    remarks: list[str] = []
    end = seen.start
    taken: list[tuple[ProbeStep, int]] = []
    for step, answer in zip(STEPS, seen.answers, strict=True):
        if step is _OLD and answer.error == ErrorCode.INVALID_TIMESTAMP:
            remarks.append(
                "the target refuses records with old timestamps (message.timestamp.before.max.ms): they halt a lane"
            )
            continue
        offsets = {(each.producer, each.sequence): offset for each, offset in taken}
        if fault := _fault(step, answer, end, offsets.get((step.producer, step.sequence), -1)):
            failures.setdefault(step.rule, fault)
        if answer.error == 0 and answer.base_offset >= end:
            taken.append((step, answer.base_offset))
            end = answer.base_offset + RECORDS
    failures |= _after(seen, taken, end)
    if any(not batch.same_records for batch in seen.stored):
        remarks.append("the target recompresses batches (compression.type): copies are compared record by record")
    if any(batch.append_time for batch in seen.stored):
        remarks.append("the target replaces timestamps with the append time (message.timestamp.type)")
    lines = tuple(f"not met: {rule} ({fault})" for rule, fault in failures.items())
    return Judgement(lines, tuple(remarks), disturbed=False)


def _fault(step: ProbeStep, answer: ProbeAnswer, end: int, known_at: int) -> str:
    """Return what is wrong with the answer to a step, or an empty string if the answer is right.

    `end` is the end offset of the log before the step. `known_at` is the offset of an earlier batch with the same
    producer and sequence, or -1.
    """
    match step.fate:
        case "taken" if answer != (0, end):
            wanted = f"offset {end}"
        case "known" if answer != (0, known_at):
            wanted = f"offset {known_at}"
        case "refused" if answer.error not in step.errors:
            wanted = ErrorCode.name_of(step.errors[0])
        case _:
            return ""
    found = ErrorCode.name_of(answer.error) if answer.error else f"offset {answer.base_offset}"
    return f"the answer is {found}, not {wanted}"


def _after(seen: Observed, taken: Sequence[tuple[ProbeStep, int]], end: int) -> dict[str, str]:
    """Compare the broker's state after the last step with the rules. For each broken rule, return what is wrong."""
    faults: dict[str, str] = {}
    wanted = {step.producer: (step.sequence + RECORDS - 1) % (_LAST_SEQUENCE + 1) for step, _ in taken}
    if seen.last_sequences is None:
        faults[TELLS] = "they do not answer DescribeProducers"
    else:
        for producer, sequence in wanted.items():
            last_sequence = seen.last_sequences.get(producer)
            # The broker may forget the producer of old records at any time. Lanes do not rely on this producer state.
            if last_sequence != sequence and not (producer == _OLD.producer and last_sequence is None):
                faults.setdefault(
                    TELLS, f"it is {'not reported' if last_sequence is None else last_sequence}, not {sequence}"
                )
    if seen.end != end:
        faults[ENDS] = f"it is {seen.end}, not {end}"
    stored = [(batch.base_offset, batch.records, batch.producer, batch.epoch, batch.sequence) for batch in seen.stored]
    if stored != [(offset, RECORDS, step.producer, 0, step.sequence) for step, offset in taken]:
        faults[KEEPS] = f"{len(stored)} batches are stored, unlike the {len(taken)} that were acknowledged"
    return faults


def mode(probed: TargetProbed | None) -> Mode:
    """Return the mode in which lanes work. The mode is "at-least-once" only if the brokers have failed a probe."""
    return "sequence" if probed is None or probed.passed else "at-least-once"


def guarantee(probed: TargetProbed | None, not_probed: str = "") -> tuple[Guarantee | None, str]:
    """Return the delivery guarantee of a flow, and one line with the failures or remarks of the probe.

    `not_probed` says why the probe could not be completed. It is empty if the probe was completed.
    """
    if probed is None and not not_probed:
        return None, ""
    lines = list(probed.remarks if probed.passed else probed.failures) if probed is not None else []
    if not_probed:
        lines.append(f"not probed: {not_probed}")
    return "exactly-once" if mode(probed) == "sequence" else "at-least-once", "; ".join(lines)
