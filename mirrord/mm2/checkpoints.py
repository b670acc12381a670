"""Writes the positions of consumer groups to MirrorMaker 2's checkpoints topic on the target. The module
`mirrord.mm2.rules.checkpoints` decides which positions are written.

A caller that knows the positions of groups passes them to `record`, as often as necessary. Once per interval, the
positions that have changed are written. A position is written only after the target has acknowledged the records before
it. The topic is read before the first write, because a new checkpoint must be compared with the previous checkpoint for
the same group and partition.
"""

import asyncio
from collections.abc import Iterable

from mirrord.config.schema import ClusterConfig, FlowConfig
from mirrord.kafka.protocol.errors import WireError
from mirrord.kafka.protocol.mm2_records import Checkpoint
from mirrord.mm2.client_topic import SMALL, Mm2Topic
from mirrord.mm2.rules.checkpoints import CheckpointBook
from mirrord.model.errors import EnvironmentFault
from mirrord.model.group_status import TranslatedPosition
from mirrord.runtime.current_failures import Troubles
from policies.mm2_names import checkpoints_topic

RETRY_S = 5.0


class Checkpoints:
    """Writes the checkpoints of one flow."""

    def __init__(self, flow: FlowConfig, target: ClusterConfig, timeout_s: float) -> None:
        self._flow = flow
        self._target = target
        self._timeout_s = timeout_s
        self._name = checkpoints_topic(flow.source, flow.mm2_records.separator)
        self._book = CheckpointBook()
        self._troubles = Troubles("checkpoints", flow=flow.name)

    def record(self, positions: Iterable[TranslatedPosition]) -> None:
        """Add the current positions of groups. The caller ensures that the target has acknowledged all records before
        these positions."""
        for position in positions:
            self._book.record(position)

    def forget_unseen(self) -> set[str]:
        """Forget the checkpoints of groups and partitions whose positions have not been added since the last call.
        Return the target topics to which the others belong."""
        self._book.forget_unseen()
        return self._book.topics()

    def forget(self, target_topic: str) -> None:
        """Forget the checkpoints of a target topic that was deleted and re-created under the same name."""
        self._book.forget(target_topic)

    @property
    def remarks(self) -> list[str]:
        """One line for each operation that is currently failing."""
        return self._troubles.lines

    async def run(self) -> None:
        """Write checkpoints until cancelled."""
        topic = Mm2Topic(self._name, self._target, self._timeout_s)
        try:
            while True:
                try:
                    await topic.create(self._flow.mm2_records.checkpoints_replication_factor, SMALL)
                    await self._learn(topic)
                    await self._write(topic)
                except EnvironmentFault as fault:
                    self._troubles.report(f"checkpoints are not written: {fault}")
                    await asyncio.sleep(RETRY_S)
        finally:
            await topic.end()

    async def _learn(self, topic: Mm2Topic) -> None:
        for key, value in await topic.read_all():
            try:
                self._book.learn(Checkpoint.decode(key, value))
            except WireError:
                continue  # MirrorMaker 2's MirrorCheckpointTask also ignores records that it cannot decode
        self._troubles.report("")

    async def _write(self, topic: Mm2Topic) -> None:
        while True:
            due, unfit = _encoded(self._book.due())
            if due:
                await topic.write([(key, value) for _, key, value in due])
                self._book.written(checkpoint for checkpoint, _, _ in due)
            self._troubles.report(f"no checkpoint for the group {unfit}: its name does not fit" if unfit else "")
            await asyncio.sleep(self._flow.mm2_records.checkpoints_every_ms / 1000)


def _encoded(due: Iterable[Checkpoint]) -> tuple[list[tuple[Checkpoint, bytes, bytes]], str]:
    """Return each checkpoint with its encoded key and value. Also return the name of one group whose checkpoint cannot
    be encoded, or an empty string if there is none."""
    encoded: list[tuple[Checkpoint, bytes, bytes]] = []
    unfit = ""
    for checkpoint in due:
        try:
            encoded.append((checkpoint, checkpoint.key, checkpoint.value))
        except WireError:
            unfit = checkpoint.group
    return encoded, unfit
