"""Which checkpoints are to be written: positions of groups, as Kafka's RemoteClusterUtils and others read them.

A checkpoint never goes back unless the group went back at the source: consumers that moved to the target would read
records again. So it is written when it is the first of its group and partition, when the group's position at the source
lies below the last one's, or when it leads further at the target (MirrorCheckpointTask.checkpointsForGroup). Nothing is
ever taken back: a record without a value breaks the Java readers.
"""

from collections.abc import Iterable

from mirrord.kafka.protocol.mm2_records import Checkpoint
from mirrord.model.group_status import Translated

Place = tuple[str, str, int]
"""Group, topic as the target names it, partition."""


class CheckpointBook:
    """The checkpoints of one flow: what stands in the topic, and what is to be added."""

    def __init__(self) -> None:
        self._stand: dict[Place, Checkpoint] = {}
        self._written: dict[Place, Checkpoint] = {}
        self._changed: set[Place] = set()
        """Places of which it is not settled whether a checkpoint is due."""

    def learn(self, checkpoint: Checkpoint) -> None:
        """This one stands in the topic."""
        place = _place(checkpoint)
        self._written[place] = checkpoint
        if place in self._stand:
            self._changed.add(place)

    def tell(self, position: Translated) -> None:
        """A group stands here now, at the target never in front of the end of the log; what was told before and is not
        written yet is superseded."""
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
        """The topic was deleted and created again: its offsets mean nothing any more."""
        for known in (self._stand, self._written):
            for place in [place for place in known if place[1] == target_topic]:
                del known[place]
        self._changed = {place for place in self._changed if place[1] != target_topic}

    def due(self) -> list[Checkpoint]:
        """What is to be written now."""
        due: list[Checkpoint] = []
        for place in list(self._changed):
            checkpoint = self._stand[place]
            if advances(self._written.get(place), checkpoint):
                due.append(checkpoint)
            else:
                self._changed.discard(place)
        return due

    def written(self, checkpoints: Iterable[Checkpoint]) -> None:
        """These, which were due, are in the topic now."""
        for checkpoint in checkpoints:
            self.learn(checkpoint)


def advances(known: Checkpoint | None, wanted: Checkpoint) -> bool:
    """Whether a checkpoint is to be written after the one that is known."""
    return known is None or wanted.upstream < known.upstream or wanted.downstream > known.downstream


def _place(checkpoint: Checkpoint) -> Place:
    return checkpoint.group, checkpoint.topic, checkpoint.partition
