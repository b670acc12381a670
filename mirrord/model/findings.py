"""What `check` and `plan` find: how bad, where, what, and what to do about it."""

from typing import Literal

import msgspec

Severity = Literal["error", "warning", "note"]
"""error: `start` would fail, or not do what the configuration asks; warning: it works, but not as one may think."""

_ORDER: tuple[Severity, ...] = ("error", "warning", "note")


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that was found. All texts are for people, one line each."""

    severity: Severity
    flow: str = ""
    """Empty: it concerns a cluster, and every flow of it."""
    where: str
    """The cluster, and the topic or other resource in it."""
    what: str
    do: str = ""
    """What to do; empty when there is nothing to be done."""


def worse(one: Severity, other: Severity) -> bool:
    """Whether the first one is the worse."""
    return _ORDER.index(one) < _ORDER.index(other)


def worst_first(findings: list[Finding]) -> list[Finding]:
    """Errors, then warnings, then notes; within each as they were found, and each only once."""
    return sorted(dict.fromkeys(findings), key=lambda finding: _ORDER.index(finding.severity))
