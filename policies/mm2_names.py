"""The names of the topics that MirrorMaker 2 keeps records for its clients in.

org.apache.kafka.connect.mirror.ReplicationPolicy: a separator of internal names may differ from that of copied topics,
and the name of heartbeats is affected by neither.
"""

from mirrord.model.names import Alias

HEARTBEATS = "heartbeats"


def checkpoints_topic(source: Alias, separator: str = ".") -> str:
    """On the target: positions of the source's consumer groups there."""
    return f"{source}{separator}checkpoints{separator}internal"


def offset_syncs_topic(other: Alias, separator: str = ".") -> str:
    """Pairs of offsets; the name is that of the cluster where the topic does not stand."""
    return f"mm2-offset-syncs{separator}{other}{separator}internal"
