"""One daemon replaces another one (`mirrord start --upgrade`): what the two say to each other.

The new one asks, and the old one answers at its HTTP door. Either may be of another version: fields are only added.
"""

from typing import Literal

import msgspec

from mirrord.ledger.facts.core import Progress
from mirrord.model.names import LaneId
from mirrord.replication.lane.assignment import Greeting

Verb = Literal["terms", "begin", "found", "greet", "release", "report", "close", "kill", "end"]
"""terms: what there is to hand over. begin: this daemon is to hand a flow over; it does when its lease goes on with the
one that asks. found: the replicators of a flow that was handed over; then follow the calls to them. end: nothing is
left, the old daemon may go."""


class Predecessor(msgspec.Struct, frozen=True):
    """A daemon that is to be replaced."""

    http: str
    program: str
    daemon: str
    """As `Holder.daemon`; whoever goes on with its leases is of the same daemon."""


class Successor(msgspec.Struct, frozen=True):
    """The daemon that replaces it."""

    http: str
    program: str


class HandoverTerms(msgspec.Struct, frozen=True, kw_only=True):
    """What there is to hand over."""

    program: str
    instance: str
    daemon: str
    lease_ttl_ms: int
    flows: tuple[str, ...]


class HandoverCall(msgspec.Struct, frozen=True, kw_only=True):
    """What the new daemon asks for."""

    verb: Verb
    successor: Successor | None = None
    flow: str = ""
    name: str = ""
    """Of a replicator."""
    lanes: tuple[LaneId, ...] = ()
    deadline_s: float = 0.0


class HandoverAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What the old one says."""

    refused: str = ""
    """Why nothing was done, or empty; it may be asked again."""
    dead: bool = False
    """The replicator has ended."""
    terms: HandoverTerms | None = None
    names: tuple[str, ...] = ()
    """Of replicators."""
    greeting: Greeting | None = None
    left: dict[LaneId, bool] = {}
    """For each released lane whether it was left cleanly."""
    words: dict[LaneId, Progress] = {}
    """The last marks of those."""
    report: bytes = b""
    """The `ReplicatorReport` of a replicator, as msgpack."""
