"""Keeps a group follower running while this daemon holds a flow's lease, and passes on the follower's reports."""

import asyncio
from collections.abc import Callable
from contextlib import suppress

import msgspec
import structlog

from mirrord.config.changes import LIVE
from mirrord.config.schema import FlowConfig
from mirrord.ledger.state_topic_records import Tenure
from mirrord.model.errors import MirrordError
from mirrord.model.group_status import GroupsReport, TranslatedPosition
from mirrord.replication.lane.assignment import FlowSetup
from mirrord.runtime.build_info import program
from mirrord.supervision.fleet.engine import Engine, GroupsHandle, NodeLost, ReplicatorDead, ReplicatorUnsure

POLL_S = 1.0
"""Interval between two requests for new positions from the follower."""
LONGEST_PAUSE_S = 10.0
LIVED_S = 5.0
"""If a follower ends within this time after its start, the pause before the next start doubles, up to
`LONGEST_PAUSE_S`, because each start uses CPU time. If a follower has run for longer, the pause is `POLL_S`."""
SILENT_S = 15.0
"""A follower that has not answered for this long is replaced."""
END_S = 1.0

NOT_ITS_OWN = LIVE - {"groups", "mm2_records"}
"""Fields of a flow's configuration that a follower does not use, so a change to them does not require a new follower. A
follower learns from the ledger, not from the configuration, which topics are copied. On Ray, a new follower is a new
process, and starting it would take a core away from the lanes for a second or two."""

log = structlog.get_logger()


class GroupKeeper:
    """Keeps the group follower of one flow running, if the configuration requires one."""

    def __init__(self, engine: Engine, instance: str) -> None:
        self.note = ""
        """Why consumer groups are not followed, as one line for operators. Empty if they are followed or need not be
        followed."""
        self.on_translated: Callable[[tuple[TranslatedPosition, ...]], None] | None = None
        """Called about once per second with the translated positions that have changed."""
        self.states: dict[str, int] | None = None
        """The number of positions in each `GroupState`. None until the current follower has reported it."""
        self.parts = False
        """Whether another process of this daemon has taken over the follower. If so, this process must not kill it."""
        self._engine = engine
        self._instance = instance
        self._wanted = False
        self._handle: GroupsHandle | None = None
        self._died = asyncio.Event()
        self._started = 0
        self._tenure = Tenure(0)
        self._found: list[str] | None = []
        """Names of followers that the previous process left running and that have not been examined yet. None if the
        search for these followers has not begun."""

    async def run(self, setup: FlowSetup, flow: Callable[[], FlowConfig], turn: int = 1) -> None:
        """Keep a follower running until cancelled. `flow` returns the current configuration, which may change.

        `turn` counts the processes of this daemon that have held this lease. If it is above 1, the previous process's
        follower is kept, provided that it has the same configuration.
        """
        loop = asyncio.get_running_loop()
        self._tenure = Tenure(setup.lease_epoch, turn)
        self._found = None if turn > 1 else []
        pause_s = POLL_S
        while True:
            present, began = flow(), loop.time()
            self._wanted = present.follows_groups
            if not present.follows_groups:
                self.note = ""
                await asyncio.sleep(POLL_S)
                continue
            try:
                await self._serve(msgspec.structs.replace(setup, flow=present), flow)
            except MirrordError as fault:
                note = f"groups are not followed: {fault}"
                if note != self.note:
                    log.error("groups_not_followed", flow=present.name, reason=str(fault))
                self.note = note
                pause_s = POLL_S if loop.time() - began > LIVED_S else min(2 * pause_s, LONGEST_PAUSE_S)
                await asyncio.sleep(pause_s)

    @property
    def followed(self) -> bool | None:
        """Whether a follower is running. None if the configuration requires no follower."""
        return self._handle is not None if self._wanted else None

    @property
    def remarks(self) -> tuple[str, ...]:
        """The remark for operators in `note`, or nothing if `note` is empty."""
        return (self.note,) if self.note else ()

    async def report(self, *, reverse: bool = False) -> GroupsReport | None:
        """Return the current positions of all consumer groups. With `reverse`, return the positions that are synced
        from the target to the source.

        Return None if no follower is running, or if the follower does not answer.
        """
        handle = self._handle
        if handle is None:
            return None
        try:
            return await handle.report(reverse=reverse)
        except (ReplicatorDead, ReplicatorUnsure):
            return None

    async def _serve(self, setup: FlowSetup, flow: Callable[[], FlowConfig]) -> None:
        """Run one follower until the configuration requires a different one. Raises EnvironmentFault if the follower
        ends before that."""
        self._died.clear()
        handle = await self._adopt(setup) or await self._start(setup)
        self._handle = handle
        try:
            await self._listen(handle, setup, flow)
        finally:
            self._handle = self.states = None
            if not self.parts:
                with suppress(TimeoutError, ReplicatorDead, ReplicatorUnsure):
                    async with asyncio.timeout(END_S):
                        await handle.kill()

    def _prefix(self, setup: FlowSetup) -> str:
        return f"{self._instance}/{setup.flow.name}/groups.g"

    async def _start(self, setup: FlowSetup) -> GroupsHandle:
        self._started += 1
        name = f"{self._prefix(setup)}{self._tenure}.{self._started}"
        handle = await self._engine.start_groups(name, setup, self._died.set)
        log.info("groups_followed", flow=setup.flow.name, follower=name)
        return handle

    async def _adopt(self, setup: FlowSetup) -> GroupsHandle | None:
        """Return a follower that was left running with the current version and configuration, or None if there is no
        such follower. Terminate all other followers that were left running."""
        adopted: GroupsHandle | None = None
        if self._found is None:
            self._found = await self._engine.found(self._prefix(setup))
        while self._found:
            name = self._found.pop()
            with suppress(ReplicatorDead, ReplicatorUnsure):
                handle = None if adopted else await self._engine.attach_groups(name, self._died.set)
                if handle is None:
                    await self._engine.end(name)
                elif await _is_same(handle, setup):
                    log.info("groups_adopted", flow=setup.flow.name, follower=name)
                    adopted = handle
                else:
                    await handle.kill()
        self._died.clear()
        return adopted

    async def _listen(self, handle: GroupsHandle, setup: FlowSetup, flow: Callable[[], FlowConfig]) -> None:
        loop = asyncio.get_running_loop()
        heard = loop.time()
        while _follows_the_same(flow(), setup.flow):
            if self._died.is_set():
                raise ReplicatorDead("their follower has ended")
            try:
                news = await handle.news()
            except ReplicatorUnsure as fault:
                if isinstance(fault, NodeLost) or loop.time() - heard > SILENT_S:
                    raise
                self.note = f"the follower of groups does not answer: {fault}"
            else:
                heard = loop.time()
                self.note = news.note
                self.states = self.states if news.states is None else news.states
                if news.translated and self.on_translated is not None:
                    self.on_translated(news.translated)
            with suppress(TimeoutError):
                async with asyncio.timeout(POLL_S):
                    await self._died.wait()


async def _is_same(handle: GroupsHandle, setup: FlowSetup) -> bool:
    try:
        answer = await handle.greet()
    except ReplicatorUnsure:
        return False
    if answer.program != program():
        return False  # this version may be unable to read the follower's answers
    known = msgspec.msgpack.decode(answer.setup, type=FlowSetup)
    return msgspec.structs.replace(known, flow=setup.flow) == setup and _follows_the_same(known.flow, setup.flow)


def _follows_the_same(one: FlowConfig, other: FlowConfig) -> bool:
    fields = [name for name in FlowConfig.__struct_fields__ if name not in NOT_ITS_OWN]
    return all(getattr(one, name) == getattr(other, name) for name in fields)
