"""Decides which checkpoints to write. A checkpoint is a record with a group's position at the source and at the target.
Kafka's RemoteClusterUtils and other clients read it.

A checkpoint never goes back unless the group went back at the source; otherwise consumers that moved to the target
would read records again. A checkpoint is therefore written in three cases: it is the first of its group and partition,
the group's position at the source is below that of the last checkpoint, or its position at the target is higher
(MirrorCheckpointTask.checkpointsForGroup). Checkpoints are never deleted, because the Java clients fail at a record
without a value.
"""

from collections.abc import Iterable

from mirrord.kafka.protocol.mm2_records import Checkpoint
from mirrord.model.group_status import TranslatedPosition

CheckpointKey = tuple[str, str, int]
"""Name of the group, name of the target topic, and partition."""


class CheckpointBook:
    """The checkpoints of one flow: those that the topic contains, and those that must be written."""

    def __init__(self) -> None:
        self._stand: dict[CheckpointKey, Checkpoint] = {}
        self._written: dict[CheckpointKey, Checkpoint] = {}
        self._changed: set[CheckpointKey] = set()
        """Groups and partitions that have changed since `due` last compared their positions with the topic."""

    def learn(self, checkpoint: Checkpoint) -> None:
        """Record that this checkpoint is in the topic."""
        place = _place(checkpoint)
        self._written[place] = checkpoint
        if place in self._stand:
            self._changed.add(place)

    def record(self, position: TranslatedPosition) -> None:
        """Add a group's current position. The position at the target is never after the end of the log.

        It replaces an earlier position that has not been written yet.
        """
        if position.upstream < 0 or position.downstream < 0:
            return
        checkpoint = Checkpoint(
            position.group,
            position.target_topic,
            position.partition,
            position.upstream,
            position.downstream,
            position.metadata,
        )
        place = _place(checkpoint)
        self._stand[place] = checkpoint
        self._changed.add(place)

    def forget(self, target_topic: str) -> None:
        """Forget the checkpoints of a topic that was deleted and created again, because their offsets are those of the
        former topic."""
        for known in (self._stand, self._written):
            for place in [place for place in known if place[1] == target_topic]:
                del known[place]
        self._changed = {place for place in self._changed if place[1] != target_topic}

    def due(self) -> list[Checkpoint]:
        """Return the checkpoints to write now."""
        due: list[Checkpoint] = []
        for place in list(self._changed):
            checkpoint = self._stand[place]
            if advances(self._written.get(place), checkpoint):
                due.append(checkpoint)
            else:
                self._changed.discard(place)
        return due

    def written(self, checkpoints: Iterable[Checkpoint]) -> None:
        """Record that these checkpoints are in the topic now."""
        for checkpoint in checkpoints:
            self.learn(checkpoint)


def advances(known: Checkpoint | None, wanted: Checkpoint) -> bool:
    """Return whether a checkpoint must be written after the last one of its group and partition, `known`."""
    return known is None or wanted.upstream < known.upstream or wanted.downstream > known.downstream


def _place(checkpoint: Checkpoint) -> CheckpointKey:
    return checkpoint.group, checkpoint.topic, checkpoint.partition
