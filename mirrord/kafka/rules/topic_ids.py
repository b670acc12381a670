"""Refuses clusters that have topics without topic ids (KIP-516).

Lanes are identified by topic ids. All topics without an id are reported with the id zero, so their lanes could not be
distinguished. Brokers with ZooKeeper assign ids only if `inter.broker.protocol.version` is 2.8 or newer, regardless of
which release they run.
"""

from collections.abc import Sequence

from mirrord.kafka.protocol.primitives import ZERO_UUID
from mirrord.model.names import ClusterId

EXAMPLES = 3
"""Maximum number of topics that the error message names."""


def missing_ids(where: str, cluster_id: ClusterId, topics: Sequence[tuple[str, str]]) -> str | None:
    """Return the error message for a cluster that reports topics without ids, or None if all topics have ids.

    `where` names the cluster. `topics` are pairs of a topic's name and id.
    """
    without = sorted(name for name, topic_id in topics if topic_id == ZERO_UUID)
    if not without:
        return None
    names = ", ".join(without[:EXAMPLES]) + (", ..." if len(without) > EXAMPLES else "")
    which = "its topics" if len(without) == len(topics) else f"{len(without)} of its {len(topics)} topics"
    return (
        f"{where} (id {cluster_id}) cannot be used: {which} have no topic id ({names}), and mirrord cannot distinguish "
        "topics without one. Brokers with ZooKeeper assign topic ids from inter.broker.protocol.version=2.8 on: set it "
        "on every broker and restart the brokers one by one, or migrate the cluster to KRaft; then start mirrord again"
    )
