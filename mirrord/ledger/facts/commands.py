"""Facts that record commands to a daemon, as opposed to its flows."""

from typing import Literal

from mirrord.ledger.facts.base import Fact, Origin

DaemonCommand = Literal["apply", "stop", "upgrade"]


class CommandGiven(Fact, frozen=True, tag="command_given"):
    """A client has given the daemon that holds the lease a command: to read its file again, to stop, or to hand its
    flows over to another daemon. The fact is for information only."""

    command: DaemonCommand
    """What the daemon was to do."""
    origin: Origin
    detail: str = ""
    """What the command was about, for operators: for example, the address of the other daemon."""
