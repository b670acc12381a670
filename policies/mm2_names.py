"""The names of the topics in which MirrorMaker 2 stores records for its clients.

The names are those of org.apache.kafka.connect.mirror.ReplicationPolicy. They contain a separator, which may differ
from the one in the names of target topics. The name of the heartbeats topic contains none.
"""

from mirrord.model.names import Alias

HEARTBEATS = "heartbeats"


def checkpoints_topic(source: Alias, separator: str = ".") -> str:
    """Return the name of the topic on the target that holds checkpoints: the positions of the source's consumer groups,
    and the matching positions at the target."""
    return f"{source}{separator}checkpoints{separator}internal"


def offset_syncs_topic(other: Alias, separator: str = ".") -> str:
    """Return the name of the topic that holds pairs of matching source and target offsets. `other` is the alias of the
    flow's other cluster, on which the topic is not."""
    return f"mm2-offset-syncs{separator}{other}{separator}internal"
