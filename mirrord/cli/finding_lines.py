"""Formats the findings of `mirrord check` and `mirrord plan` as lines for a terminal."""

from collections.abc import Iterable, Iterator

from rich.markup import escape

from mirrord.model.findings import Finding

_STYLES = {"error": "bold red", "warning": "yellow", "note": "cyan"}


def finding_lines(findings: Iterable[Finding]) -> Iterator[str]:
    """Yield a line for each finding. If something can be done about it, yield a second line that says what to do."""
    for finding in findings:
        flow = f"flow {finding.flow}, " if finding.flow else ""
        head = f"[{_STYLES[finding.severity]}]{finding.severity}[/] {escape(flow)}{escape(finding.where)}"
        yield f"{head}: {escape(finding.what)}"
        if finding.do:
            yield f"    {escape(finding.do)}"
