"""`mirrord lag`: shows the lag of every lane: first the halted lanes, then all others in order of descending lag."""

import argparse

from mirrord.cli.arguments import Verbs, add_conf, add_flow, add_output, add_verb
from mirrord.cli.status_tables import lag_table
from mirrord.cli.status_watch import show

_EPILOG = """The answer comes from the running daemon or, if no daemon is running, from the target cluster alone."""


def register(verbs: Verbs) -> None:
    """Add the parser for `mirrord lag`."""
    parser = add_verb(verbs, "lag", "Show each partition's lag in records and seconds, the largest first.", _EPILOG)
    add_conf(parser)
    add_flow(parser)
    add_output(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the lanes and their lag; with `--watch`, print them every second. Raises ConfigError or
    EnvironmentFault."""
    return show(arguments, lag_table)
