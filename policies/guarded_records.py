"""Wraps a user's filters and transforms, and checks every result. If the user's code raises an exception or returns an
invalid result, PolicyFault is raised for the record in question."""

from collections.abc import Sequence
from typing import Any, NamedTuple, cast

from mirrord.config.fault_text import shown
from mirrord.model.errors import PolicyFault
from policies.class_loading import line_of
from policies.contracts import Record, RecordFilter, RecordTransform


class Changed(NamedTuple):
    """The fields of a record that a transform has returned. The record is written to the target with these values."""

    time_ms: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


class GuardedFilter:
    """Calls a user's filter and checks its results."""

    def __init__(self, label: str, policy: RecordFilter) -> None:
        self._label = label
        self._policy = policy

    def keeps(self, record: Record) -> bool:
        """Return whether the record is copied. Raises PolicyFault if the filter fails or returns an invalid result."""
        try:
            answer = cast(object, self._policy.keeps(record))
        except (Exception, SystemExit) as error:
            raise PolicyFault(f"{self._label}: keeps raised {line_of(error)}") from error
        if not isinstance(answer, bool):
            raise PolicyFault(f"{self._label}: keeps returned {shown(answer)}; allowed: True or False")
        return answer


class GuardedTransform:
    """Calls a user's transform and checks its results."""

    def __init__(self, label: str, policy: RecordTransform) -> None:
        self._label = label
        self._policy = policy

    def changed(self, record: Record) -> Changed:
        """Return the changed record. Raises PolicyFault if the transform fails or returns an invalid result."""
        try:
            answer: Any = self._policy.changed(record)
        except (Exception, SystemExit) as error:
            raise PolicyFault(f"{self._label}: changed raised {line_of(error)}") from error
        try:
            made = Changed(answer.time_ms, answer.key, answer.value, list(answer.headers))
        except Exception as error:
            rule = "a record, such as record._replace(value=...); a filter decides which records to exclude"
            raise PolicyFault(f"{self._label}: changed returned {shown(answer)}; allowed: {rule}") from error
        if fault := _fault(made):
            raise PolicyFault(f"{self._label}: changed returned a record with {fault}")
        return made


def _fault(made: Changed) -> str:
    time_ms: Any = made.time_ms
    if not isinstance(time_ms, int) or isinstance(time_ms, bool) or not -1 <= time_ms < 1 << 62:
        return f"the time {shown(cast(object, time_ms))}; allowed: milliseconds since 1970 as int"
    for name in ("key", "value"):
        found: object = getattr(made, name)
        if found is not None and not isinstance(found, bytes):
            return f"the {name} {shown(found)}; allowed: bytes or None"
    headers: list[Any] = list(made.headers)
    if strange := [header for header in headers if not _is_header(header)]:
        return f"the header {shown(cast(object, strange[0]))}; allowed: a name and bytes or None"
    return ""


def _is_header(found: Any) -> bool:
    if not isinstance(found, tuple | list) or len(cast("Sequence[object]", found)) != 2:
        return False
    name, value = cast("tuple[object, object]", found)
    return isinstance(name, str) and _is_text(name) and (value is None or isinstance(value, bytes))


def _is_text(name: str) -> bool:
    """Return whether a str has bytes. A lone surrogate has none, unless it represents a byte of the source record's
    name that is not UTF-8."""
    try:
        name.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return False
    return True
