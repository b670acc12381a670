"""The names of the topics in which MirrorMaker 2 stores records for its clients.

The names are those of org.apache.kafka.connect.mirror.ReplicationPolicy. All of these names except that of the
heartbeats topic contain a separator, which may differ from the separator in the names of target topics.
"""

from mirrord.model.names import Alias

HEARTBEATS = "heartbeats"


def checkpoints_topic(source: Alias, separator: str = ".") -> str:
    """Return the name of the checkpoints topic, which is on the target. The topic contains the positions of the
    source's consumer groups, and the matching positions on the target."""
    return f"{source}{separator}checkpoints{separator}internal"


def offset_syncs_topic(other: Alias, separator: str = ".") -> str:
    """Return the name of the offset-syncs topic, which contains pairs of matching source and target offsets. The topic
    is on one of the flow's two clusters, and `other` is the alias of the other cluster."""
    return f"mm2-offset-syncs{separator}{other}{separator}internal"
