"""What the commands `source`, `log`, `map` and `check` show."""

from collections.abc import Iterator
from itertools import groupby

from mirrord.ledger.offset_map import CopiedPosition, LaneMap, Translation
from tests.scenario import words
from tests.scenario.stage import Stage
from tests.sim.host import LANE
from tests.sim.target import Stored


def source(stage: Stage) -> Iterator[str]:
    """The batches of the source log."""
    for batch in stage.source.log:
        held = _records([number for _, number in batch.records])
        yield f"{words.spanned('source offset', batch.base, batch.last + 1)}: {held}, leader epoch {batch.epoch}"


def log(stage: Stage) -> Iterator[str]:
    """The batches of the target log, as its leader has them."""
    for stored in _log(stage):
        yield f"{words.spanned('target offset', stored.base, stored.end)}: {_stored(stored)}"


def offset_map(stage: Stage) -> Iterator[str]:
    """The runs of both sides, and where a reader of the target continues for every source offset."""
    record = stage.truth.lanes[LANE]
    for side, runs in (("source", record.source_runs), ("target", record.target_runs)):
        yield f"{side} runs: {', '.join(f'from ordinal {run.ordinal} offset {run.offset}' for run in runs)}"
    own = [each for each in _log(stage) if each.producer >= 0]
    copied = CopiedPosition(own[-1].sequence + own[-1].count, own[-1].end, stage.source.end) if own else None
    lane = LaneMap(record, copied)
    answers = [lane.to_target(offset) for offset in range(stage.source.end)]
    for _, group in groupby(answers, _kind):
        yield _translations(list(group))


def summary(stage: Stage) -> Iterator[str]:
    """How many records were copied, and how many source offsets have a verdict."""
    count = sum(bool(number) for stored in _log(stage) for number in stored.numbers if stored.producer >= 0)
    counts = sorted(stage.truth.lanes[LANE].verdicts.counts.items())
    verdicts = ", ".join(f"{found} {reason}" for reason, found in counts if found)
    verdicts_part = f"; verdicts on source offsets: {verdicts}" if verdicts else ""
    yield f"passed: {words.plural(count, 'record')} in the target log{verdicts_part}"


def _log(stage: Stage) -> list[Stored]:
    return stage.target.brokers[stage.target.leader].log


def _records(numbers: list[int]) -> str:
    return f"{'record' if len(numbers) == 1 else 'records'} {words.spans(numbers)}" if numbers else "no record"


def _stored(stored: Stored) -> str:
    if stored.producer < 0:
        return "another client"
    numbers = [number for number in stored.numbers if number]
    held = _records(numbers)
    if cleaned := stored.count - len(numbers):
        held += f" ({words.plural(cleaned, 'record')} removed by the log cleaner)"
    ordinals = words.spanned("ordinal", stored.sequence, stored.sequence + stored.count)
    return f"{ordinals}, {held}, leader epoch {stored.leader_epoch}"


def _kind(translation: Translation) -> tuple[str, str, int | None, int | None]:
    """What the answers of one line have in common."""
    if translation.kind == "exact":
        return translation.kind, translation.reason, (translation.offset or 0) - translation.asked, None
    return (
        translation.kind,
        translation.reason,
        translation.offset,
        None if translation.record is None else translation.record - translation.asked,
    )


def _translations(group: list[Translation]) -> str:
    first, count = group[0], len(group)
    length = count if first.kind == "exact" else 1
    there = "-" if first.offset is None else words.span(first.offset, first.offset + length)
    at = first.record if first.kind == "reordered" else None
    record = f", at {words.spanned('offset', at, at + count)}" if at is not None else ""
    reason = f" ({first.reason})" if first.reason else ""
    return f"source {words.span(first.asked, first.asked + count)} -> target {there} {first.kind}{reason}{record}"
