"""The findings of `check` and `plan`: severity, location, description and remedy."""

from typing import Literal

import msgspec

Severity = Literal["error", "warning", "note"]
"""Severity of a finding. "error": `start` would fail, or would not do what the configuration asks for. "warning": it
works, but not as one may expect.
"""

_ORDER: tuple[Severity, ...] = ("error", "warning", "note")


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One finding. All texts are for people, one line each."""

    severity: Severity
    flow: str = ""
    """The flow concerned. Empty if the finding concerns a cluster and every flow of it."""
    where: str
    """The cluster, and the topic or other resource in it."""
    what: str
    do: str = ""
    """The remedy, or an empty string if there is nothing to do."""


def worse(one: Severity, other: Severity) -> bool:
    """Whether the first severity is worse than the second."""
    return _ORDER.index(one) < _ORDER.index(other)


def worst_first(findings: list[Finding]) -> list[Finding]:
    """Return errors, then warnings, then notes, each in the order in which they were found and without duplicates."""
    return sorted(dict.fromkeys(findings), key=lambda finding: _ORDER.index(finding.severity))
