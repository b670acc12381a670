"""`mirrord topics`: shows the target topic of each source topic, or why a topic is not copied."""

import argparse
import asyncio
from collections.abc import Sequence

import msgspec
from rich.console import Group
from rich.markup import escape
from rich.table import Table

from mirrord.cli.arguments import Verbs, add_conf, add_flow, add_verb, load_conf
from mirrord.cli.status_watch import console
from mirrord.config.schema import Config
from mirrord.ledger.standing_orders import Orders
from mirrord.ledger.store.cluster_access import ClusterAccess
from mirrord.model.errors import EnvironmentFault
from mirrord.operations.cluster_survey import FlowSurvey, recorded_lines, survey_flows
from mirrord.operations.status_report import PATIENCE_S, LedgerView, read_ledgers
from mirrord.topics.rules.topic_list import TopicLine, with_orders
from policies.policy_trial import LOADING

_EPILOG = """States: copied; to-create and to-grow (the next start creates the target topic, or adds partitions to it);
fault (the topic cannot be copied); ended (a failover has ended its copying); internal, excluded, not-included, cycle
and left-out (the topic is not selected); paused (by `mirrord pause`). If the source does not answer, the topics in the
ledger are shown, with the state recorded. Nothing is changed."""
_STYLES = {
    "copied": "green",
    "to-create": "yellow",
    "to-grow": "yellow",
    "fault": "bold red",
    "recorded": "cyan",
    "paused": "cyan",
}


class FlowTopics(msgspec.Struct, frozen=True):
    """The source topics of one flow and their target topics, as `mirrord topics` prints them."""

    name: str
    source: str
    target: str
    topics: Sequence[TopicLine]
    error: str = ""
    """Why the clusters could not be queried; empty if they answered."""


def register(verbs: Verbs) -> None:
    """Add the parser for `mirrord topics`."""
    parser = add_verb(
        verbs, "topics", "Show the target topic of each source topic, or why a topic is not copied.", _EPILOG
    )
    add_conf(parser)
    add_flow(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def run(arguments: argparse.Namespace) -> int:
    """Print the topics of the selected flows. Raises ConfigError. Raises EnvironmentFault if no flow's topics can
    be read."""
    config = load_conf(arguments, LOADING)
    if arguments.flow is not None:
        config = config.only([config.flow(arguments.flow)])
    flows = asyncio.run(_gather(config))
    if all(flow.error and not flow.topics for flow in flows):
        raise EnvironmentFault("\n".join(f"flow {flow.name}: {flow.error}" for flow in flows))
    if arguments.json:
        print(msgspec.json.encode({"flows": flows}).decode())
    else:
        console().print(_table(flows))
    return 0


async def _gather(config: Config) -> list[FlowTopics]:
    access = ClusterAccess(config, PATIENCE_S)
    surveys, views = await asyncio.gather(survey_flows(config, access), read_ledgers(config, access))
    flows: list[FlowTopics] = []
    for flow in config.flows:
        survey, view = surveys[flow.name], views[flow.name]
        orders = view.state.orders if isinstance(view, LedgerView) else Orders()
        lines = survey.lines if isinstance(survey, FlowSurvey) else recorded_lines(view)
        error = "" if isinstance(survey, FlowSurvey) else str(survey)
        lines_with_orders = [with_orders(line, orders) for line in lines]
        flows.append(FlowTopics(flow.name, flow.source, flow.target, lines_with_orders, error))
    return flows


def _table(flows: Sequence[FlowTopics]) -> Group:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for title in ("flow", "source topic", "target topic"):
        table.add_column(title, overflow="fold")
    table.add_column("partitions", justify="right")
    table.add_column("state", no_wrap=True)
    table.add_column("why", overflow="fold")
    for flow in flows:
        for line in flow.topics:
            style = _STYLES.get(line.state, "dim")
            state = f"[{style}]{line.state}[/]"
            target = escape(line.target) or "-"
            name, source, why = escape(flow.name), escape(line.source), escape(line.why)
            table.add_row(name, source, target, str(line.partitions), state, why)
    errors = [f"[red]{escape(flow.name)}: {escape(flow.error)}[/]" for flow in flows if flow.error]
    return Group(table, *errors)
