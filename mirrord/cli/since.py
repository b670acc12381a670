"""Parses the option `--since`: a point in time, or a duration before now."""

from mirrord.config.units import duration_ms
from mirrord.config.value_parsers import start_point
from mirrord.model.errors import ConfigError
from mirrord.runtime.clock import SystemClock

_RULE = "a time with its zone, such as 2026-01-31T12:00:00Z, epoch milliseconds, or a duration, such as 24h"


def since_ms(given: str | None) -> int | None:
    """Return the given time as milliseconds since the Unix epoch, or None if the option was not given. Raises
    ConfigError."""
    if given is None:
        return None
    try:
        return SystemClock().wall_ms() - duration_ms(given)
    except ValueError:
        pass
    try:
        found = start_point(int(given) if given.isdecimal() else given)
    except ValueError:
        found = None
    if not isinstance(found, int):
        raise ConfigError(f'--since: "{given}" is neither a time nor a duration; allowed: {_RULE}')
    return found
