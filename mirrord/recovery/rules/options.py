"""Checks the options of a question about readiness. The command line and the HTTP API have the same options."""

from mirrord.config.units import DURATION_RULE, duration_ms
from mirrord.model.errors import ConfigError


def rpo_seconds(given: str, option: str) -> float:
    """Return the largest acceptable lag. Raises ConfigError, whose line names the option."""
    try:
        return duration_ms(given) / 1000
    except ValueError:
        raise ConfigError(f'{option}: found "{given}"; allowed: {DURATION_RULE}') from None


def principal(given: str, option: str) -> str:
    """Return the name of a principal, which contains its type. Raises ConfigError, whose line names the option."""
    kind, _, name = given.partition(":")
    if not kind or not name:
        raise ConfigError(f'{option}: found "{given}"; allowed: a principal with its type, such as User:app')
    return given
