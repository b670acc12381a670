"""The messages between the old daemon and the new daemon during an upgrade (`mirrord start --upgrade`).

The new daemon sends requests to the HTTP API of the old daemon. The two daemons may run different versions of mirrord.
Fields may therefore be added to the messages, but not removed or changed.
"""

from typing import Literal

import msgspec

from mirrord.ledger.facts.core import Progress
from mirrord.model.names import LaneId
from mirrord.replication.lane.assignment import Greeting

HandoverVerb = Literal["terms", "begin", "found", "greet", "release", "report", "close", "kill", "end"]
"""The requests that the new daemon can send.

- "terms": return which flows can be handed over.
- "begin": hand over a flow. The handover happens when the new daemon continues the lease of the flow.
- "found": return the names of the replicators of a flow that was handed over.
- "greet", "release", "report", "close", "kill": call this method of `ReplicatorHandle` on one of these replicators.
- "end": end the old daemon, because it has no lanes left.
"""


class Predecessor(msgspec.Struct, frozen=True):
    """The old daemon, which is being replaced."""

    http: str
    program: str
    daemon: str
    """The identity of the old daemon, as in `Holder.daemon`. A daemon that continues its leases takes over this
    identity."""
    by: str = ""
    """Who has started the new daemon: user@host as the command line reports it."""


class Successor(msgspec.Struct, frozen=True):
    """The new daemon, which replaces the old daemon."""

    http: str
    program: str


class HandoverTerms(msgspec.Struct, frozen=True, kw_only=True):
    """The flows that the old daemon can hand over, and the old daemon's version, instance name and identity."""

    program: str
    instance: str
    daemon: str
    lease_ttl_ms: int
    flows: tuple[str, ...]


class HandoverCall(msgspec.Struct, frozen=True, kw_only=True):
    """A request from the new daemon to the old daemon."""

    verb: HandoverVerb
    successor: Successor | None = None
    flow: str = ""
    name: str = ""
    """The name of the replicator to which the request applies."""
    lanes: tuple[LaneId, ...] = ()
    deadline_s: float = 0.0
    by: str = ""
    """Who has started the new daemon, as the client says."""


class HandoverAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The old daemon's answer to a `HandoverCall`."""

    refused: str = ""
    """Why the request was not carried out; empty if it was. The new daemon may send the request again."""
    dead: bool = False
    """Whether the replicator to which the request applies has ended."""
    terms: HandoverTerms | None = None
    names: tuple[str, ...] = ()
    """In the answer to "found": the names of the flow's replicators."""
    greeting: Greeting | None = None
    left: dict[LaneId, bool] = {}
    """In the answer to "release": for each lane, whether the replicator has left it cleanly."""
    words: dict[LaneId, Progress] = {}
    """In the answer to "release": the last progress record of each lane that was left cleanly."""
    report: bytes = b""
    """In the answer to "report": the `ReplicatorReport` of the replicator, encoded as msgpack."""
