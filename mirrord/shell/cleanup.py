"""Answers lanes that ask whether the source's topic is compacted."""

import asyncio
from collections.abc import Callable, Coroutine

from mirrord.flow.cleanup import AskCleanup, CleanupTold
from mirrord.model.config import ClusterConfig
from mirrord.model.errors import EnvironmentFault
from mirrord.shell.auditing import is_compacted
from mirrord.shell.effective import topic_settings
from mirrord.shell.hosted import Hosted

_POLICY = "cleanup.policy"
Begin = Callable[[Coroutine[None, None, None]], asyncio.Task[None]]


class Cleanup:
    """Asks one cluster."""

    def __init__(self, cluster: ClusterConfig, timeout_s: float, begin: Begin) -> None:
        self._cluster = cluster
        self._timeout_s = timeout_s
        self._begin = begin

    def ask(self, hosted: Hosted, effect: AskCleanup) -> None:
        """Answer when the cluster has."""
        self._begin(self._ask(hosted, effect.question))

    async def _ask(self, hosted: Hosted, question: int) -> None:
        topic = hosted.source.topic
        try:
            settings = await topic_settings(self._cluster, [topic], [_POLICY], self._timeout_s)
        except EnvironmentFault as fault:
            hosted.tell(CleanupTold(question, None, str(fault)))
            return
        policy = settings[topic].values.get(_POLICY) if topic in settings else None
        hosted.tell(CleanupTold(question, None if policy is None else is_compacted(policy)))
