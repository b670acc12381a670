"""The messages between two daemons when one replaces the other (`mirrord start --upgrade`).

The new daemon asks, and the old one answers through its HTTP server. Either may be of another version, so fields are
only added.
"""

from typing import Literal

import msgspec

from mirrord.ledger.facts.core import Progress
from mirrord.model.names import LaneId
from mirrord.replication.lane.assignment import Greeting

HandoverVerb = Literal["terms", "begin", "found", "greet", "release", "report", "close", "kill", "end"]
"""What the new daemon requests. "terms": ask what there is to hand over. "begin": ask the old daemon to hand over a
flow, which it does once the requesting daemon has continued its lease. "found": ask for the replicators of a flow that
was handed over; calls to these follow. "end": nothing is left, and the old daemon may exit.
"""


class Predecessor(msgspec.Struct, frozen=True):
    """The daemon that is to be replaced."""

    http: str
    program: str
    daemon: str
    """The same as `Holder.daemon`. A daemon that continues its leases has the same identity."""


class Successor(msgspec.Struct, frozen=True):
    """The daemon that replaces the old one."""

    http: str
    program: str


class HandoverTerms(msgspec.Struct, frozen=True, kw_only=True):
    """The flows that the old daemon can hand over, and its identity."""

    program: str
    instance: str
    daemon: str
    lease_ttl_ms: int
    flows: tuple[str, ...]


class HandoverCall(msgspec.Struct, frozen=True, kw_only=True):
    """A request that the new daemon sends to the old one."""

    verb: HandoverVerb
    successor: Successor | None = None
    flow: str = ""
    name: str = ""
    """Name of a replicator."""
    lanes: tuple[LaneId, ...] = ()
    deadline_s: float = 0.0


class HandoverAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The old daemon's answer to a `HandoverCall`."""

    refused: str = ""
    """Why nothing was done, or an empty string. The request may be repeated."""
    dead: bool = False
    """Whether the replicator has ended."""
    terms: HandoverTerms | None = None
    names: tuple[str, ...] = ()
    """Names of replicators."""
    greeting: Greeting | None = None
    left: dict[LaneId, bool] = {}
    """Whether each released lane was left cleanly."""
    words: dict[LaneId, Progress] = {}
    """The last resume positions of the lanes that were left cleanly."""
    report: bytes = b""
    """The `ReplicatorReport` of a replicator, as msgpack."""
