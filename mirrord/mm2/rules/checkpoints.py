"""Decides which checkpoints to write. A checkpoint is a record with a group's position on the source and the matching
position on the target. Kafka's RemoteClusterUtils and other clients read checkpoints.

A checkpoint must not move backward unless the group has moved backward on the source. Otherwise, consumers that move to
the target would read records again. Therefore a checkpoint is written in three cases
(MirrorCheckpointTask.checkpointsForGroup):

- It is the first checkpoint for its group and partition.
- The group's position on the source is lower than in the latest checkpoint.
- The group's position on the target is higher than in the latest checkpoint.

Checkpoints are never deleted, because the Java clients fail on a record without a value.
"""

from collections.abc import Iterable

from mirrord.kafka.protocol.mm2_records import Checkpoint
from mirrord.model.group_status import TranslatedPosition

CheckpointKey = tuple[str, str, int]
"""The name of the group, the name of the target topic, and the partition."""


class CheckpointBook:
    """The checkpoints of one flow: those in the topic, and those that must still be written."""

    def __init__(self) -> None:
        self._stand: dict[CheckpointKey, Checkpoint] = {}
        self._written: dict[CheckpointKey, Checkpoint] = {}
        self._seen: set[CheckpointKey] = set()
        """Groups and partitions whose positions were added since the last call to `forget_unseen`."""
        self._changed: set[CheckpointKey] = set()
        """Groups and partitions whose positions may differ from their checkpoints in the topic. `due` compares each
        position with its checkpoint."""

    def learn(self, checkpoint: Checkpoint) -> None:
        """Record that this checkpoint is in the topic."""
        place = _place(checkpoint)
        self._written[place] = checkpoint
        if place in self._stand:
            self._changed.add(place)

    def record(self, position: TranslatedPosition) -> None:
        """Add a group's current position. The position on the target must not be beyond the end of the target log.

        The new position replaces any earlier position that has not been written yet.
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
        self._seen.add(place)
        self._changed.add(place)

    def forget(self, target_topic: str) -> None:
        """Forget the checkpoints of a target topic that was deleted and re-created. Their offsets belong to the
        deleted topic."""
        for known in (self._stand, self._written):
            for place in [place for place in known if place[1] == target_topic]:
                del known[place]
        self._changed = {place for place in self._changed if place[1] != target_topic}

    def forget_unseen(self) -> None:
        """Forget the groups and partitions whose positions have not been added since the last call. Their topics were
        deleted, or the groups no longer have committed offsets there. If no positions were added at all, nothing is
        known about any group, and none is forgotten.

        The group follower passes all positions at least once a minute, so calls must be much further apart. If a
        forgotten group commits again, its next checkpoint is its first one.
        """
        if not self._seen:
            return
        for known in (self._stand, self._written):
            for place in known.keys() - self._seen:
                del known[place]
        self._changed &= self._seen
        self._seen.clear()

    def topics(self) -> set[str]:
        """Return the target topics to which the checkpoints belong."""
        return {place[1] for known in (self._stand, self._written) for place in known}

    def due(self) -> list[Checkpoint]:
        """Return the checkpoints that must be written now."""
        due: list[Checkpoint] = []
        for place in list(self._changed):
            checkpoint = self._stand[place]
            if advances(self._written.get(place), checkpoint):
                due.append(checkpoint)
            else:
                self._changed.discard(place)
        return due

    def written(self, checkpoints: Iterable[Checkpoint]) -> None:
        """Record that these checkpoints are now in the topic."""
        for checkpoint in checkpoints:
            self.learn(checkpoint)


def advances(known: Checkpoint | None, wanted: Checkpoint) -> bool:
    """Return whether a new checkpoint must be written. `known` is the latest checkpoint for the same group and
    partition, or None if there is none."""
    return known is None or wanted.upstream < known.upstream or wanted.downstream > known.downstream


def _place(checkpoint: Checkpoint) -> CheckpointKey:
    return checkpoint.group, checkpoint.topic, checkpoint.partition
