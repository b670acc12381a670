"""`mirrord drain`: moves all partitions of a replicator to other replicators."""

import argparse

from mirrord.cli.arguments import Verbs, add_verb
from mirrord.cli.order_verbs import EPILOG, add_order, give

_EPILOG = f"""The partitions move a few at a time, and no other partition pauses. The replicator gets no partitions
until `mirrord resume` is run for it, or until another replicator has replaced it. If no other replicator can take its
partitions, one more replicator is started.

{EPILOG}"""


def register(verbs: Verbs) -> None:
    """Add the parser for `mirrord drain`."""
    parser = add_verb(verbs, "drain", "Move all partitions of a replicator to other replicators.", _EPILOG)
    add_order(
        parser, "HOST", "a replicator: its name in `mirrord status --json` and `lag`, or its number, as in replicator-1"
    )


def run(arguments: argparse.Namespace) -> int:
    """Send the operator command `drain` to the daemon. Raises ConfigError or EnvironmentFault."""
    return give(arguments, "drain")
