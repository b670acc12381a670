"""`mirrord resume`: resumes copying after a pause, or lets a drained replicator host lanes again."""

import argparse

from mirrord.cli.arguments import Verbs, add_verb
from mirrord.cli.order_verbs import EPILOG, add_kind, add_order, give

_EPILOG = f"""This revokes the `pause` or `drain` of the same name. If another pause also applies, for example one of
the whole flow, the affected partitions stay paused, and the answer says so.

{EPILOG}"""


def register(verbs: Verbs) -> None:
    """Add the parser for `mirrord resume`."""
    parser = add_verb(verbs, "resume", "Resume what was paused, or let a drained replicator host lanes again.", _EPILOG)
    what = "a flow, a topic of the source, a partition such as orders-3, or a replicator"
    add_order(parser, "FLOW|TOPIC|LANE|HOST", what)
    add_kind(parser, "flow", "topic", "lane", "host")


def run(arguments: argparse.Namespace) -> int:
    """Send the operator command `resume` to the daemon. Raises ConfigError or EnvironmentFault."""
    return give(arguments, "resume")
