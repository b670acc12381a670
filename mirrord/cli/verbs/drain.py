"""`mirrord drain`: moves the partitions of a replicator to others."""

import argparse

from mirrord.cli.arguments import Verbs, add_verb
from mirrord.cli.order_verbs import EPILOG, add_order, give

_EPILOG = f"""A few partitions move at a time, and no others pause. The replicator gets no partitions until `mirrord
resume` names it, or until another one has replaced it. If no other replicator could take its partitions, one more is
started.

{EPILOG}"""


def register(verbs: Verbs) -> None:
    """Add the parser of `mirrord drain`."""
    parser = add_verb(verbs, "drain", "Empty a replicator: its partitions move to others.", _EPILOG)
    add_order(parser, "HOST", "a replicator, as `mirrord status --json` and `lag` name it, or replicator-1")


def run(arguments: argparse.Namespace) -> int:
    """Send the command `drain` to the daemon. Raises ConfigError, EnvironmentFault."""
    return give(arguments, "drain")
