"""The parts of a key of mm2.properties: whose property it is, of which client, and its name."""

from collections.abc import Sequence

import msgspec

from mirrord.model.names import Alias

_CLIENTS = ("consumer.", "producer.", "admin.")
_FLOW_CLIENTS = (
    *(f"{client}override." for client in _CLIENTS),
    *(f"{side}.{client}" for side in ("source", "target") for client in _CLIENTS),
    "source.cluster.",
    "target.cluster.",
    *_CLIENTS,
)
_NO_CLIENT = (
    "consumer.poll.timeout.ms",
    "admin.timeout.ms",
    "admin.listeners",
    "source.cluster.alias",
    "target.cluster.alias",
)
"""Names that only begin as if a client had them."""


class Place(msgspec.Struct, frozen=True):
    """Where a property stands."""

    clusters: tuple[Alias, ...]
    """None: at the top, for all; one: of a cluster; two: of a flow from the first to the second."""
    client: str
    """`consumer.`, `source.consumer.` and so on, or empty."""
    name: str

    @property
    def prefix(self) -> str:
        """What stands before client and name."""
        return f"{'->'.join(self.clusters)}." if self.clusters else ""


def place(key: str, aliases: Sequence[Alias]) -> Place:
    """The parts of a key, given the clusters of the file."""
    clusters: tuple[Alias, ...] = ()
    name = key
    # The longest alias first: one may begin with another one and a dot.
    for alias in sorted(aliases, key=len, reverse=True):
        for other in aliases:
            if key.startswith(f"{alias}->{other}.") and alias != other:
                clusters, name = (alias, other), key.removeprefix(f"{alias}->{other}.")
        if not clusters and key.startswith(f"{alias}."):
            clusters, name = (alias,), key.removeprefix(f"{alias}.")
        if clusters:
            break
    client = ""
    if name not in _NO_CLIENT and not name.startswith("admin.listeners."):
        known = _FLOW_CLIENTS if len(clusters) == 2 else _CLIENTS
        client = next((each for each in known if name.startswith(each) and name != each), "")
    return Place(clusters, client, name.removeprefix(client))
