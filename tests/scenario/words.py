"""Signals, effects and facts as lines of text.

Every line is built from the class name and the fields of the object. A field is omitted if it has its default or says
nothing: None, False, an empty tuple, an error code of 0, the number of a question.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any

import msgspec

from mirrord.cli.fact_lines import describe
from mirrord.kafka.protocol.errors import ErrorCode
from mirrord.kafka.protocol.record_batch import CONTROL, HEADER, LENGTH_OFFSET, TRANSACTIONAL
from mirrord.ledger.facts.base import Fact
from mirrord.ledger.facts.core import AnyFact, Progress, Verdict
from mirrord.ledger.state import LaneState
from mirrord.model.runs import Run
from mirrord.replication.lane.signals import Batch, Chunk, OwnBatch

HIDDEN = frozenset({"question", "tag", "frame", "lane", "buffer", "start_ms", "data"})
"""Fields that say nothing to a reader: numbers that pair an answer with its question, and bytes."""
OF_PROGRESS = ("ordinal", "target_offset", "leader_epoch", "source_offset", "source_epoch", "settled", "state")
OF_MARK = ("ordinal", "target_offset", "state")
"""The fields of a progress record that are shown in the state topic, and in a signal."""


def message(thing: Any, facts: Sequence[AnyFact] = ()) -> str:
    """A signal or an effect: its class, and what its fields say. `facts` are those that it answers for."""
    if not facts:
        return " ".join([type(thing).__name__, *_fields(thing)])
    effects = ["" if binds else " (no effect)" for binds in getattr(thing, "bound", (True,) * len(facts))]
    names = [f"{type(fact).__name__}{effect}" for fact, effect in zip(facts, effects, strict=True)]
    return f"{type(thing).__name__} {', '.join(names)}"


def fact_line(fact: AnyFact, *, binds: bool) -> str:
    """A fact, in the words of `mirrord ledger show`."""
    effect = "" if binds else " (no effect)"
    return f"{type(fact).__name__}: {describe(fact, lambda _: '').removeprefix(': ')}{effect}"


def progress_line(progress: Progress) -> str:
    """A progress record."""
    return " ".join([type(progress).__name__, *_fields(progress, OF_PROGRESS)])


def span(start: int, end: int) -> str:
    """The numbers from `start` up to but not including `end`: "3-7", or "3" if there is one."""
    return str(start) if end - start == 1 else f"{start}-{end - 1}"


def spanned(noun: str, start: int, end: int) -> str:
    """The same with a noun: "offsets 3-7", or "offset 3"."""
    return f"{noun if end - start == 1 else noun + 's'} {span(start, end)}"


def spans(numbers: Iterable[int]) -> str:
    """Ascending numbers, consecutive ones as spans: "0-4, 7"."""
    found = list(numbers)
    runs = [
        list(each) for _, each in groupby(zip(found, range(len(found)), strict=True), lambda each: each[0] - each[1])
    ]
    return ", ".join(span(run[0][0], run[-1][0] + 1) for run in runs)


def error_name(code: int) -> str:
    """Kafka's name of an error code."""
    return ErrorCode.name_of(code)


def plural(count: int, word: str) -> str:
    """A count with its noun."""
    return f"{count} {word}" if count == 1 else f"{count} {word}s"


def source_batches(chunk: Chunk) -> Iterator[str]:
    """The batches of a fetch response."""
    at = chunk.start
    while at < chunk.end:
        header = HEADER.unpack_from(chunk.buffer, at)
        kind = "control batch " if header[5] & CONTROL else "transactional " if header[5] & TRANSACTIONAL else ""
        yield f"{kind}{span(header[0], header[0] + header[6] + 1)}"
        at += header[1] + LENGTH_OFFSET


def _fields(thing: Any, only: Sequence[str] = ()) -> list[str]:
    parts: list[str] = []
    if isinstance(thing, Chunk) and thing.end > thing.start:
        parts.append(f"source offsets {', '.join(source_batches(thing))}")
    hidden = HIDDEN | ({"start", "end"} if isinstance(thing, Chunk) else set())
    for each in msgspec.structs.fields(type(thing)):
        value = getattr(thing, each.name)
        is_wanted = each.name in only if only else each.name not in hidden
        if not is_wanted or value == each.default or (value is not None and _is_empty(each.name, value)):
            continue
        parts.append(_field(each.name, value))
    return parts


def _is_empty(name: str, value: Any) -> bool:
    if name == "error":
        return value == 0
    if isinstance(value, tuple | list) and not value:
        return True
    return value is False or (name == "times" and not any(value))


def _field(name: str, value: Any) -> str:
    if name == "error":
        return f"error={error_name(value)}"
    if name == "facts":
        return ", ".join(type(each).__name__ for each in value)
    if isinstance(value, Batch):
        return _value(value)
    if isinstance(value, list | tuple) and value and isinstance(value[0], Batch):
        return "; ".join(map(_value, value))
    if value is True:
        return name
    return f"{name}={_value(value)}"


def _value(value: Any) -> str:
    match value:
        case Batch():
            ordinals = spanned("ordinal", value.first, value.first + value.count)
            return f"{ordinals} {spanned('source offset', value.offset, value.next_offset)}"
        case LaneState():
            return f"(grant {value.grant})"
        case Progress():
            return f"({' '.join(_fields(value, OF_MARK))})"
        case Run():
            return f"{value.ordinal}@{value.offset}"
        case Verdict():
            return f"{value.reason}:{span(value.start, value.end)}"
        case OwnBatch():
            return f"{span(value.base_sequence, value.base_sequence + value.count)}@{value.base_offset}"
        case Fact():
            return type(value).__name__
        case msgspec.Struct():
            return f"({' '.join(_fields(value))})"
        case _:
            return _plain(value)


def _plain(value: Any) -> str:
    match value:
        case None | bool():
            return str(value).lower()
        case float():
            return f"{value:g}"
        case str():
            return f'"{value}"' if " " in value else value
        case tuple() | list() if value and all(isinstance(each, int) for each in value):
            return f"({','.join(map(_value, value))})"
        case tuple() | list():
            return " ".join(map(_value, value))
        case _:
            return str(value)
