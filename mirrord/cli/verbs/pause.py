"""`mirrord pause`: stops copying a flow, a topic or a partition until `mirrord resume` is run for it."""

import argparse

from mirrord.cli.arguments import Verbs, add_verb
from mirrord.cli.order_verbs import EPILOG, add_kind, add_order, give

_EPILOG = f"""Batches in flight are acknowledged first, and `mirrord resume` continues after them. Partitions that are
added to a paused topic later are paused as well. Topics, configs, ACLs and groups are still synced while copying is
paused.

{EPILOG}"""


def register(verbs: Verbs) -> None:
    """Add the parser for `mirrord pause`."""
    parser = add_verb(verbs, "pause", "Stop copying a flow, a topic or a partition until it is resumed.", _EPILOG)
    add_order(parser, "FLOW|TOPIC|LANE", "a flow, a topic of the source, or a partition such as orders-3")
    add_kind(parser, "flow", "topic", "lane")


def run(arguments: argparse.Namespace) -> int:
    """Send the operator command `pause` to the daemon. Raises ConfigError or EnvironmentFault."""
    return give(arguments, "pause")
