"""Splits a key of mm2.properties into its parts: the clusters to which it applies, the Kafka client that it
configures, and the name of the property. Example: `eu->us.source.consumer.isolation.level`."""

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
"""Properties whose names begin with a client prefix although they do not configure a client."""


class PropertyLocation(msgspec.Struct, frozen=True):
    """The parts of a key: the clusters to which it applies, the Kafka client that it configures, and the name of the
    property."""

    clusters: tuple[Alias, ...]
    """The clusters that the key names. If it names none, the property applies to all clusters and flows. One alias
    means that cluster. Two aliases mean the flow from the first cluster to the second."""
    client: str
    """The prefix of a client, such as `consumer.` or `source.consumer.`. Empty if the key configures no client."""
    name: str

    @property
    def prefix(self) -> str:
        """The part of the key that names the clusters, including the dot after it. Empty if the key names none."""
        return f"{'->'.join(self.clusters)}." if self.clusters else ""


def locate(key: str, aliases: Sequence[Alias]) -> PropertyLocation:
    """Split the key of a property into its parts. `aliases` contains the aliases of the clusters in the file."""
    clusters: tuple[Alias, ...] = ()
    name = key
    # Longer aliases are tried first, because an alias may begin with another alias followed by a dot.
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
    return PropertyLocation(clusters, client, name.removeprefix(client))
