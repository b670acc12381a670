"""The names of the topics in which MirrorMaker 2 stores records for its clients.

See org.apache.kafka.connect.mirror.ReplicationPolicy: the separator of internal names may differ from that of copied
topics, and the name of heartbeats depends on neither.
"""

from mirrord.model.names import Alias

HEARTBEATS = "heartbeats"


def checkpoints_topic(source: Alias, separator: str = ".") -> str:
    """Return the name of the topic on the target that holds the positions of the source's consumer groups there."""
    return f"{source}{separator}checkpoints{separator}internal"


def offset_syncs_topic(other: Alias, separator: str = ".") -> str:
    """Return the name of the topic that holds pairs of offsets. `other` is the cluster that does not
    store the topic."""
    return f"mm2-offset-syncs{separator}{other}{separator}internal"
