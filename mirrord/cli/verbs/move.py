"""`mirrord move`: moves a partition to another replicator and pins it there, or removes the pin."""

import argparse

from mirrord.cli.arguments import Verbs, add_verb
from mirrord.cli.order_verbs import EPILOG, add_order, give

_EPILOG = f"""The partition is pinned to the number of the replicator: until --unpin, it stays on the replicator with
this number, even if that replicator is replaced or the daemon restarts. While no replicator has this number, the
partition is placed like any other.

{EPILOG}"""


def register(verbs: Verbs) -> None:
    """Add the parser for `mirrord move`."""
    parser = add_verb(verbs, "move", "Move a partition to a replicator.", _EPILOG)
    add_order(parser, "LANE", "a partition of the source, such as orders-3")
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--to", metavar="HOST", help="the replicator, such as replicator-1")
    where.add_argument(
        "--unpin", action="store_true", help="remove the pin, so that the partition is placed like any other"
    )


def run(arguments: argparse.Namespace) -> int:
    """Send the operator command `move` or, with `--unpin`, `unpin` to the daemon. Raises ConfigError or
    EnvironmentFault."""
    return give(arguments, "unpin") if arguments.unpin else give(arguments, "move", to=arguments.to)
