"""Tracks the offsets that the consumer groups of one cluster commit. If mirrord is permitted to read
`__consumer_offsets`, it follows that topic. Otherwise, it polls the groups."""

import asyncio
from collections.abc import Callable

import structlog

from mirrord.config.flow_features import GroupsConfig
from mirrord.groups.offsets_topic_reader import GroupLog, MayNotRead, NoSuchTopic
from mirrord.groups.rules.commit_plan import GroupBook, GroupFilter
from mirrord.kafka.client.cluster_metadata import ClusterView
from mirrord.kafka.client.group_admin import LATER, GroupAdmin
from mirrord.kafka.client.partition_queries import Asks
from mirrord.kafka.protocol.consumer_offsets import OffsetKey, OffsetValue
from mirrord.kafka.protocol.errors import ErrorCode
from mirrord.kafka.protocol.groups import GroupOffsets
from mirrord.kafka.protocol.primitives import TopicAndPartition
from mirrord.model.errors import MirrordError
from mirrord.model.group_status import CommitSource
from mirrord.replication.host.fetcher import SourceFetcher

RETRY_S = 1.0
LOG_AGAIN_S = 60.0
"""How long, in seconds, mirrord polls before it tries to read `__consumer_offsets` again. In the meantime, an
administrator may have granted the permission."""
LOOK_S = 0.2

log = structlog.get_logger()


class GroupSource:
    """Keeps the newest committed offsets of one cluster's groups in `book`, a `GroupBook`."""

    def __init__(
        self,
        view: ClusterView,
        source: SourceFetcher,
        asks: Asks,
        config: GroupsConfig,
        changed: Callable[[set[str]], None],
    ) -> None:
        """`changed` is called with the names of the groups that have committed an offset, or whose committed offsets
        were deleted."""
        self.kind: CommitSource = "starting"
        self.note = ""
        self._filter = GroupFilter(config)
        self.book = GroupBook(self._filter.passes)
        self._view = view
        self._source = source
        self._asks = asks
        self._config = config
        self._changed = changed
        self._admin = GroupAdmin(view)
        self._listed: set[str] = set()
        self._list_at = 0.0
        self._log: GroupLog | None = None
        self._complete_at: float | None = None
        self._skipped = 0
        self._has_reported = False

    @property
    def skipped(self) -> int:
        """Number of records in `__consumer_offsets` that could not be decoded."""
        return self._skipped + (self._log.skipped if self._log is not None else 0)

    @property
    def complete_at(self) -> float | None:
        """A time on the event loop's clock: all commits before it are in `book`, and their groups were passed to
        `changed`. None until all commits have been read once."""
        if self._log is not None and self._log.ready:
            at = asyncio.get_running_loop().time() - self._log.age_s
            self._complete_at = at if self._complete_at is None else max(self._complete_at, at)
        return self._complete_at

    @property
    def remark(self) -> str:
        """One line for operators about groups that are never followed; empty if there are none."""
        return self._filter.remark

    async def run(self) -> None:
        """Keep `book` up to date until the task is cancelled."""
        while True:
            try:
                await self._follow()
            except MayNotRead as fault:
                self._note_fault(f"{fault}: groups are polled for their commits instead")
                await self._poll_for(LOG_AGAIN_S)
            except NoSuchTopic:
                self.kind, self._complete_at = "log", asyncio.get_running_loop().time()
                await asyncio.sleep(RETRY_S)
            except MirrordError as fault:
                self._note_fault(str(fault))
                await asyncio.sleep(RETRY_S)

    async def _follow(self) -> None:
        """Read `__consumer_offsets` until reading fails or the topic no longer exists. Raises MayNotRead if the
        permission to read the topic is missing."""
        self._log = groups = GroupLog(self._source, self._asks, self._filter.passes, self._take, self._changed)
        try:
            await groups.open(self._view)
            self._note_fault("")
            while not groups.lost:
                if groups.ready:
                    self.kind = "log"
                else:
                    await groups.check_tails(self._view)
                self._report_left_out()
                await asyncio.sleep(LOOK_S)
        finally:
            groups.close(self._view)
            self._skipped += groups.skipped
            self._log = None
        if groups.lost == ErrorCode.TOPIC_AUTHORIZATION_FAILED.name:
            raise MayNotRead(f"READ on the topic __consumer_offsets of {self._view.alias} is missing")
        self._note_fault(f"__consumer_offsets of {self._view.alias} cannot be read: {groups.lost}")
        await asyncio.sleep(RETRY_S)

    def _take(self, key: OffsetKey, value: OffsetValue | None) -> None:
        self.book.take(key, value)

    async def _poll_for(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        while loop.time() < until:
            began = loop.time()
            try:
                await self._poll()
            except MirrordError as fault:
                self._note_fault(str(fault))
                await asyncio.sleep(RETRY_S)
            else:
                self.kind = "polling"
                await asyncio.sleep(max(0.0, began + self._config.every_ms / 1000 - loop.time()))

    async def _poll(self) -> None:
        refresh_ms = self._config.refresh_ms
        now = asyncio.get_running_loop().time()
        if not self._list_at or (refresh_ms is not None and now - self._list_at >= refresh_ms / 1000):
            listed = await self._admin.listed()
            self._listed = {name for name, each in listed.items() if each.kind != "Share" and self._filter.passes(name)}
            self._list_at = now
            self._report_left_out()
        is_complete = True
        changed = {group for group in set(self.book.groups()) - self._listed if self.book.replace(group, {})}
        for group, answer in (await self._admin.offsets(self._listed)).items():
            if answer.error:
                is_complete = False
                if answer.error not in LATER:
                    self._note_fault(f"the commits of {group} are not known: {ErrorCode.name_of(answer.error)}")
            elif self.book.replace(group, values_of(answer)):
                changed.add(group)
        if changed:
            self._changed(changed)
        if is_complete:
            # Groups that are newer than the list are not known. If the list is never renewed, they are never followed.
            self._complete_at = now if refresh_ms is None else self._list_at

    def _report_left_out(self) -> None:
        """Log once that groups are not followed. The status shows their number."""
        if self.remark and not self._has_reported:
            self._has_reported = True
            log.warning("groups_left_out", cluster=self._view.alias, reason=self.remark)

    def _note_fault(self, line: str) -> None:
        if line and line != self.note:
            log.warning("groups_not_followed", cluster=self._view.alias, reason=line)
        self.note = line


def values_of(answer: GroupOffsets) -> dict[TopicAndPartition, OffsetValue]:
    """Convert the committed offsets of a polled group into the values of records in `__consumer_offsets`. The commit
    time is set to 0, because a broker's answer to a poll does not contain it."""
    return {
        place: OffsetValue(each.offset, each.leader_epoch, each.metadata, 0) for place, each in answer.offsets.items()
    }
