"""Where the source's paused partitions end: no replicator hears of them, and their lag grows all the same."""

import asyncio
from collections.abc import Callable, Collection

from mirrord.model.config import ClusterConfig
from mirrord.model.errors import EnvironmentFault
from mirrord.model.names import TopicPartition
from mirrord.shell.log_offsets import log_offsets

LOOK_S = 5.0


class PausedEnds:
    """The ends as last told; those of others, and of a source that does not answer, are not known."""

    def __init__(self) -> None:
        self.ends: dict[TopicPartition, int] = {}

    async def follow(self, source: ClusterConfig, paused: Callable[[], Collection[TopicPartition]]) -> None:
        """Look again and again; `paused` tells the partitions that count."""
        try:
            while True:
                asked = set(paused())
                try:
                    self.ends = await log_offsets(source, asked, "end") if asked else {}
                except EnvironmentFault:
                    self.ends = {}
                await asyncio.sleep(LOOK_S)
        finally:
            self.ends = {}
