"""The messages between two daemons when one replaces the other (`mirrord start --upgrade`).

The new daemon sends requests to the HTTP API of the old one. The two daemons may have different versions, so fields may
be added, but not removed or changed.
"""

from typing import Literal

import msgspec

from mirrord.ledger.facts.core import Progress
from mirrord.model.names import LaneId
from mirrord.replication.lane.assignment import Greeting

HandoverVerb = Literal["terms", "begin", "found", "greet", "release", "report", "close", "kill", "end"]
"""What the new daemon requests. "terms": which flows can be handed over. "begin": hand over a flow, which happens when
the new daemon continues its lease. "found": the names of the replicators of a flow that was handed over. "greet",
"release", "report", "close", "kill": the calls of `ReplicatorHandle`, for one of these replicators. "end": end the old
daemon, because it has no lanes left.
"""


class Predecessor(msgspec.Struct, frozen=True):
    """The old daemon, which is replaced."""

    http: str
    program: str
    daemon: str
    """The old daemon's identity, as in `Holder.daemon`. A daemon that continues its leases takes the same identity."""


class Successor(msgspec.Struct, frozen=True):
    """The new daemon, which replaces the old one."""

    http: str
    program: str


class HandoverTerms(msgspec.Struct, frozen=True, kw_only=True):
    """The names of the flows that the old daemon can hand over, and its version and identity."""

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
    """Name of the replicator that the request is for."""
    lanes: tuple[LaneId, ...] = ()
    deadline_s: float = 0.0


class HandoverAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The old daemon's answer to a `HandoverCall`."""

    refused: str = ""
    """Why the request was not carried out, or an empty string. The request may be repeated."""
    dead: bool = False
    """Whether the replicator that the request is for has ended."""
    terms: HandoverTerms | None = None
    names: tuple[str, ...] = ()
    """Names of the flow's replicators ("found")."""
    greeting: Greeting | None = None
    left: dict[LaneId, bool] = {}
    """Whether the replicator left each of the released lanes cleanly ("release")."""
    words: dict[LaneId, Progress] = {}
    """The last resume position of each lane that was left cleanly ("release")."""
    report: bytes = b""
    """The replicator's `ReplicatorReport`, as msgpack ("report")."""
