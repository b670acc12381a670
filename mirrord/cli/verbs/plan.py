"""`mirrord plan`: shows what `mirrord start` would create and change on the target, without changing anything."""

import argparse
import asyncio
from collections.abc import Sequence

import msgspec
from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table

from mirrord.cli.arguments import Verbs, add_conf, add_flow, add_verb, load_conf
from mirrord.cli.finding_lines import finding_lines
from mirrord.cli.status_watch import console
from mirrord.config.schema import Config
from mirrord.ledger.store.cluster_access import ClusterAccess
from mirrord.model.errors import EnvironmentFault
from mirrord.model.findings import Finding, worst_first
from mirrord.operations.cluster_survey import FlowSurvey, survey_flows
from mirrord.operations.hazard_survey import find_hazards
from mirrord.operations.planned_steps import planned_steps
from mirrord.operations.status_report import PATIENCE_S
from mirrord.topics.rules.plan_steps import NOT_SYNCED, PlanStep
from policies.policy_trial import LOADING

_EPILOG = f"""Exit code 0: nothing to do; 3: there is a difference; 1: a cluster does not answer.

The following is never copied: {"; ".join(NOT_SYNCED)}."""
_STYLES = {"create": "green", "grow": "yellow", "alter": "yellow", "delete": "red"}


class Plan(msgspec.Struct, frozen=True):
    """The output of `mirrord plan`: the steps that a start would take, the findings, and what is never synced."""

    steps: Sequence[PlanStep]
    findings: Sequence[Finding]
    not_synced: Sequence[str] = NOT_SYNCED


def register(verbs: Verbs) -> None:
    """Add the parser for `mirrord plan`."""
    parser = add_verb(verbs, "plan", "Show what a start would create and change on the target.", _EPILOG)
    add_conf(parser)
    add_flow(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def run(arguments: argparse.Namespace) -> int:
    """Print the steps and the findings, and return the exit code. Raises ConfigError or EnvironmentFault."""
    config = load_conf(arguments, LOADING)
    flows = config.flows if arguments.flow is None else (config.flow(arguments.flow),)
    plan = asyncio.run(_gather(config.only(flows)))
    if arguments.json:
        print(msgspec.json.encode(plan).decode())
    else:
        console().print(_table(plan))
    return 3 if plan.steps else 0


async def _gather(config: Config) -> Plan:
    access = ClusterAccess(config, PATIENCE_S)
    surveys = await survey_flows(config, access)
    faults = [f"flow {name}: {each}" for name, each in surveys.items() if isinstance(each, EnvironmentFault)]
    if faults:
        raise EnvironmentFault("\n".join(faults))
    steps: list[PlanStep] = []
    findings: list[Finding] = []
    for survey in surveys.values():
        assert isinstance(survey, FlowSurvey)  # noqa: S101 - all others are faults
        steps += await planned_steps(config, survey)
        findings += await find_hazards(config, survey, access.ledger)
    return Plan(steps, worst_first(findings))


def _table(plan: Plan) -> RenderableType:
    last = f"[dim]never copied: {'; '.join(NOT_SYNCED)}[/]"
    if not plan.steps:
        return Group("nothing to do", *finding_lines(plan.findings), last)
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for title in ("flow", "cluster", "step", "what", "name", "how"):
        table.add_column(title, overflow="fold")
    for step in plan.steps:
        action = f"[{_STYLES[step.action]}]{step.action}[/]"
        texts = (escape(step.flow), escape(step.cluster), action, step.kind, escape(step.name), escape(step.detail))
        table.add_row(*texts)
    return Group(table, *finding_lines(plan.findings), last)
