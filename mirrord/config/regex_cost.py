"""Estimates how long a regular expression can take for a name.

Clients of the source choose the names of topics and groups. Python's `re` tries every way to divide a name among the
repetitions of an expression. For `(\\w+\\.?)+prod`, the number of ways doubles with each letter, and one name could
keep the daemon busy for years. The configuration therefore accepts only expressions for which the number of ways is
limited: no repetition contains another one, or alternatives, and there are few repetitions.
"""

# The parser of `re` has no public name. The tests show whether it is as expected.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportAttributeAccessIssue=false, reportUnknownParameterType=false

import math
from re import _constants as ops  # type: ignore[attr-defined]
from re import _parser  # type: ignore[attr-defined]
from typing import Any, NamedTuple

LONGEST_NAME = 249
"""Maximum length of a topic name in Kafka (org.apache.kafka.common.internals.Topic)."""
MOST_WAYS = 5_000_000
"""Maximum number of ways to divide a name. Python's `re` takes less than 0.1 s to try them. A name of `LONGEST_NAME`
letters allows three repetitions."""
_ANY_LENGTH = 1 << 31
"""No record is longer than this."""
_FEW = 16
"""A repetition with at most this many rounds more than it needs counts as alternatives."""
_ONE_LETTER = frozenset({ops.LITERAL, ops.NOT_LITERAL, ops.ANY, ops.IN, ops.CATEGORY, ops.RANGE, ops.AT})
_REPEATS = frozenset({ops.MAX_REPEAT, ops.MIN_REPEAT, ops.POSSESSIVE_REPEAT})
NESTED = "no repetition inside a repetition, and no alternatives inside one, as in `(a+)+` or `(ab|a)*`"
MANY = "at most three repetitions such as `.*`, and few alternatives"


class TooSlow(ValueError):
    """Raised for a regular expression that could take too long for some names. The message says what is allowed."""


class _Cost(NamedTuple):
    repeats: int = 0
    """Number of repetitions that can take any part of a name."""
    choices: int = 1
    """Number of ways to choose among alternatives."""

    def ways(self, length: int) -> int:
        return self.choices * math.comb(length + self.repeats, self.repeats)


def check_cost(pattern: str, length: int = LONGEST_NAME) -> None:
    """Raise TooSlow if the regular expression could take too long for a name of this length. The expression must be
    valid."""
    if _sequence(_parser.parse(pattern)).ways(length) > MOST_WAYS:
        raise TooSlow(MANY)


def longest_fast(pattern: str) -> int:
    """Return a length up to which the regular expression takes a short time for every text. It is at least half of the
    highest such length, and 0 if the expression can take too long for any text. The expression must be valid."""
    length = 1
    if not is_fast(pattern, length):
        return 0
    while length < _ANY_LENGTH and is_fast(pattern, 2 * length):
        length *= 2
    return length


def is_fast(pattern: str, length: int) -> bool:
    """Return whether the regular expression takes a short time for every name of this length."""
    try:
        check_cost(pattern, length)
    except TooSlow:
        return False
    return True


def _sequence(items: Any) -> _Cost:
    repeats, choices = 0, 1
    for op, value in items:
        cost = _one(op, value)
        repeats += cost.repeats
        choices *= cost.choices
    return _Cost(repeats, choices)


def _one(op: Any, value: Any) -> _Cost:
    if op in _REPEATS:
        return _repeated(*value)
    if op is ops.SUBPATTERN:
        return _sequence(value[-1])
    if op is ops.ATOMIC_GROUP:
        return _sequence(value)
    if op in {ops.ASSERT, ops.ASSERT_NOT}:
        return _sequence(value[1])
    if op is ops.BRANCH:
        return _either([_sequence(each) for each in value[1]])
    if op is ops.GROUPREF_EXISTS:
        return _either([_sequence(each) for each in value[1:] if each is not None])
    return _Cost()


def _either(costs: list[_Cost]) -> _Cost:
    return _Cost(max(cost.repeats for cost in costs), sum(cost.choices for cost in costs))


def _repeated(least: int, most: int, body: Any) -> _Cost:
    inside = _sequence(body)
    is_short = most - least <= _FEW
    if _is_plain(body):
        return _Cost(0, most - least + 1) if is_short else _Cost(1)
    if most > _FEW:
        raise TooSlow(NESTED)
    return _Cost(inside.repeats * most, (most - least + 1) * inside.choices**most)


def _is_plain(body: Any) -> bool:
    """Return whether there is only one way to match a sequence of items, because each of them stands for one letter."""
    return all(op in _ONE_LETTER or (op is ops.SUBPATTERN and _is_plain(value[-1])) for op, value in body)
