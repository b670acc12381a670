"""The findings of `mirrord check` and `mirrord plan`. A finding consists of a severity, the cluster or resource that is
affected, a description and a remedy."""

from typing import Literal

import msgspec

Severity = Literal["error", "warning", "note"]
"""Severity of a finding:

- "error": `mirrord start` would fail, or would not do what the configuration says.
- "warning": `mirrord start` would work, but perhaps not as the user expects.
- "note": nothing is wrong, but the user should know about it.
"""

_ORDER: tuple[Severity, ...] = ("error", "warning", "note")


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One finding of `mirrord check` or `mirrord plan`. Each text field holds one line for operators."""

    severity: Severity
    flow: str = ""
    """Name of the flow that the finding is about. Empty if the finding is about a cluster. A finding about a cluster
    concerns every flow that uses the cluster."""
    where: str
    """The cluster that the finding is about. If the finding is about a topic or another resource on the cluster, the
    text also names that resource."""
    what: str
    do: str = ""
    """The remedy, or an empty string if no action is needed."""


def worse(one: Severity, other: Severity) -> bool:
    """Return whether the severity `one` is worse than `other`."""
    return _ORDER.index(one) < _ORDER.index(other)


def worst_first(findings: list[Finding]) -> list[Finding]:
    """Return the findings without duplicates, sorted by severity: errors, warnings, notes. Findings of the same
    severity keep their order."""
    return sorted(dict.fromkeys(findings), key=lambda finding: _ORDER.index(finding.severity))
