"""`mirrord start --dry-run`: shows where copying would begin in each source partition, and why."""

import asyncio
from collections.abc import Sequence

import msgspec
from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table

from mirrord.cli.status_watch import console
from mirrord.config.schema import Config
from mirrord.ledger.errors import ForeignFlow
from mirrord.ledger.store.cluster_access import ClusterAccess
from mirrord.model.errors import ConfigError, EnvironmentFault
from mirrord.operations.cluster_survey import FlowSurvey, survey_flows
from mirrord.operations.start_offset_preview import DOES_NOT_BEGIN, Beginning, find_beginnings
from mirrord.operations.status_report import PATIENCE_S

_WORDS = {
    "history": "resumes by its own history",
    "start": "",
    "trouble": "[red]does not begin[/]",
    "unknown": "[red]does not begin[/]",
    "verified": "[green]after MirrorMaker 2, the ends agree[/]",
    "behind": "[yellow]the target ends before MirrorMaker 2's position[/]",
    "unverifiable": "[yellow]after MirrorMaker 2's position, nothing to compare[/]",
    "trusted": "after MirrorMaker 2's position, as configured",
    "strange": "[red]does not begin[/]",
}


def run(config: Config, *, as_json: bool) -> int:
    """Print where copying would begin in each source partition. Return 0, or 3 if there is a partition in which copying
    would not begin. Raises ConfigError or EnvironmentFault."""
    found = asyncio.run(_gather(config))
    if as_json:
        print(msgspec.json.encode(found).decode())
    else:
        console().print(_table(found))
    return 3 if any(each.by in DOES_NOT_BEGIN for each in found) else 0


async def _gather(config: Config) -> list[Beginning]:
    surveys = await survey_flows(config, ClusterAccess(config, PATIENCE_S))
    found: list[Beginning] = []
    for name, survey in surveys.items():
        if not isinstance(survey, FlowSurvey):
            raise EnvironmentFault(f"flow {name}: {survey}")
        try:
            found += await find_beginnings(config, survey, by_start=True)
        except ForeignFlow as fault:
            raise ConfigError(str(fault)) from fault
    return found


def _table(found: Sequence[Beginning]) -> RenderableType:
    last = "[dim]nothing was changed; partitions whose target topic is missing begin as configured[/]"
    if not found:
        return Group("no partition has a target topic yet", last)
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for title in ("flow", "partition", "target end", "MirrorMaker 2", "begins at", "doubled", "lacking", "why"):
        right = title not in {"flow", "partition", "why"}
        table.add_column(title, justify="right" if right else "left", overflow="fold")
    for each in found:
        numbers = (
            each.target_end,
            each.said,
            each.position,
            each.doubled_records or None,
            each.lacking_records or None,
        )
        why = "; ".join(text for text in (_WORDS[each.by], escape(each.note)) if text)
        table.add_row(
            escape(each.flow),
            escape(f"{each.topic}-{each.partition}"),
            *("" if number is None else f"{number:,}" for number in numbers),
            why,
        )
    return Group(table, last)
