"""`mirrord status`: shows flows, clusters, rates, lag, and everything that needs attention."""

import argparse

from mirrord.cli.arguments import Verbs, add_conf, add_flow, add_output, add_verb
from mirrord.cli.status_tables import status_table
from mirrord.cli.status_watch import show

_EPILOG = """The answer comes from the running daemon or, if no daemon is running, from the target cluster alone."""


def register(verbs: Verbs) -> None:
    """Add the parser for `mirrord status`."""
    parser = add_verb(verbs, "status", "Show flows, clusters, rates, lag, and what needs attention.", _EPILOG)
    add_conf(parser)
    add_flow(parser)
    add_output(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the status of the flows; with `--watch`, print it every second. Raises ConfigError or EnvironmentFault."""
    return show(arguments, status_table)
