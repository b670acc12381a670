"""Facts that record commands to a daemon, as opposed to its flows, and commands about the ledger itself."""

from typing import Literal

from mirrord.ledger.facts.base import Fact, Origin

DaemonCommand = Literal["apply", "stop", "upgrade", "order"]


class RecordSkipped(Fact, frozen=True, tag="record_skipped"):
    """An operator has decided that readers of the ledger skip the record at one offset, because it cannot be read. The
    fact is found behind this record. It takes effect under every lease, because no daemon can fold the entries before
    it. It has no effect on a record that can be read, or that a newer version of mirrord wrote."""

    offset: int
    """Offset of the record in the ledger topic."""
    origin: Origin


class StateRecordSkipped(Fact, frozen=True, tag="state_record_skipped"):
    """An operator has taken a record of the state topic out of force, because it could not be read. mirrord has then
    replaced or removed the record. The fact is for information only."""

    offset: int
    """Offset of the record in the state topic."""
    key: str
    """Key of the record."""
    origin: Origin


class LedgerSigned(Fact, frozen=True, tag="ledger_signed"):
    """An operator has vouched for the state of the ledger, and mirrord has signed it. From then on, all records are
    signed. The fact is for information only."""

    origin: Origin


class CommandGiven(Fact, frozen=True, tag="command_given"):
    """A client has given the daemon that holds the lease a command: to read its file again, to stop, or to hand its
    flows over to another daemon. Or the daemon has refused a command, because the role of the client's token does not
    permit it. The fact is for information only."""

    command: DaemonCommand
    """What the daemon was to do. "order": a command to a flow. It is recorded in this fact only if it was refused,
    because otherwise it has its own facts."""
    origin: Origin
    detail: str = ""
    """What the command was about, for operators: for example, the address of the other daemon."""
    refused: str = ""
    """Why the daemon refused the command; empty if the daemon accepted it."""
    omitted: int = 0
    """For a refused command, how many refused commands of the same token are not recorded since the previous record."""
