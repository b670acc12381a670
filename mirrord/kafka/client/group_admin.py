"""Reads the committed offsets of consumer groups on one cluster, and commits offsets for groups. Requests are sent to
the groups' coordinators.

A request for coordinators or offsets covers many groups if the broker supports that (Kafka 3.0 and newer). Each group's
commit needs a separate request, but many commits can be in flight at once. If the coordinator of a group does not
answer, the result for that group contains an error. `offsets` and `commit` raise an exception only if no broker of the
cluster can be reached. `listed` raises one if any broker does not answer.
"""

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TypeVar

from mirrord.kafka.client.cluster_metadata import ClusterView
from mirrord.kafka.client.connection import Connection
from mirrord.kafka.client.reconnecting_link import ask
from mirrord.kafka.protocol import groups
from mirrord.kafka.protocol.api_versions import (
    DELETE_GROUPS,
    FIND_COORDINATOR,
    LIST_GROUPS,
    OFFSET_COMMIT,
    OFFSET_FETCH,
)
from mirrord.kafka.protocol.errors import ErrorCode
from mirrord.kafka.protocol.groups import CommittedOffset, GroupOffsets, ListedGroup
from mirrord.kafka.protocol.primitives import TopicAndPartition
from mirrord.model.errors import EnvironmentFault, MirrordError

AT_ONCE = 200
"""Maximum number of groups in one request. This is also the maximum number of commits in flight to one broker."""
KNOWN_WITHIN_S = 2.0
POLL_S = 0.05
NETWORK = int(ErrorCode.NETWORK_EXCEPTION)
LATER = frozenset(
    {
        NETWORK,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)
"""Kafka error codes that may have a temporary cause. After one of these errors, the same request may succeed later."""
_MOVED = frozenset({NETWORK, int(ErrorCode.COORDINATOR_NOT_AVAILABLE), int(ErrorCode.NOT_COORDINATOR)})

T = TypeVar("T")


class GroupAdmin:
    """A client that reads and commits the offsets of consumer groups on one cluster."""

    def __init__(self, view: ClusterView) -> None:
        self._view = view
        self._homes: dict[str, int] = {}
        """The coordinator's node id for each group that was in the latest list, or that was asked about since then."""

    async def listed(self) -> dict[str, ListedGroup]:
        """Return all groups that mirrord may see, and forget the coordinators of all others. Raises EnvironmentFault if
        any broker does not answer."""
        await self._know_brokers()
        nodes = self._view.nodes
        found: dict[str, ListedGroup] = {}
        for error, listed in await asyncio.gather(*(self._list(node) for node in nodes)):
            if error:
                raise EnvironmentFault(f"the groups of {self._view.alias} cannot be listed: {ErrorCode.name_of(error)}")
            found |= {each.group: each for each in listed}
        self._homes = {group: node for group, node in self._homes.items() if group in found}
        return found

    async def offsets(self, wanted: Collection[str]) -> dict[str, GroupOffsets]:
        """Return the committed offsets of these groups. Raises EnvironmentFault if the cluster cannot be reached."""
        found: dict[str, GroupOffsets] = {}
        at_homes, unknown = await self._by_home(wanted)
        for group, error in unknown.items():
            found[group] = GroupOffsets(error, {})
        parts = [(node, part) for node, members in at_homes.items() for part in _parts(members, AT_ONCE)]
        for answer in await asyncio.gather(*(self._offsets(node, part) for node, part in parts)):
            found |= answer
        self._forget_moved((group, answer.error) for group, answer in found.items())
        return found

    async def commit(
        self, commits: Mapping[str, Mapping[TopicAndPartition, CommittedOffset]]
    ) -> dict[str, dict[TopicAndPartition, int]]:
        """Commit offsets for groups that have no members. Return the error code of each partition.

        Raises EnvironmentFault if the cluster cannot be reached.
        """
        at_homes, unknown = await self._by_home(commits)
        found = {group: dict.fromkeys(commits[group], error) for group, error in unknown.items()}
        tasks: list[tuple[str, asyncio.Task[dict[TopicAndPartition, int]]]] = []
        slots = {node: asyncio.Semaphore(AT_ONCE) for node in at_homes}

        async def send(node: int, group: str) -> dict[TopicAndPartition, int]:
            async with slots[node]:
                return await self._commit(node, group, commits[group])

        async with asyncio.TaskGroup() as together:
            for node, members in at_homes.items():
                tasks += [(group, together.create_task(send(node, group))) for group in members]
        for group, task in tasks:
            found[group] = task.result()
        self._forget_moved((group, error) for group, errors in found.items() for error in errors.values())
        return found

    async def delete(self, group: str) -> int:
        """Delete a group that has no members. Return the error code. Raises EnvironmentFault if the cluster cannot be
        reached."""
        await self._know_brokers()
        at_homes, unknown = await self._by_home([group])
        if group in unknown:
            return unknown[group]
        connection = await self._to(next(iter(at_homes)))
        version = connection.version(DELETE_GROUPS)
        error = await ask(connection, DELETE_GROUPS, groups.encode_delete(group), version, groups.decode_delete)
        self._forget_moved([(group, error)])
        return error

    async def _know_brokers(self) -> None:
        """Wait until the `ClusterView` knows the brokers of the cluster, which it learns from its first metadata
        response. Raises EnvironmentFault if that takes longer than `KNOWN_WITHIN_S` seconds."""
        if not self._view.nodes:
            await self._view.any_broker()
        deadline = asyncio.get_running_loop().time() + KNOWN_WITHIN_S
        while not self._view.nodes:
            if asyncio.get_running_loop().time() > deadline:
                raise EnvironmentFault(f"no broker of {self._view.alias} is known yet")
            await asyncio.sleep(POLL_S)

    async def _list(self, node: int) -> tuple[int, list[ListedGroup]]:
        connection = await self._to(node)
        version = connection.version(LIST_GROUPS)
        body = groups.encode_list(version)
        return await ask(connection, LIST_GROUPS, body, version, lambda reader: groups.decode_list(version, reader))

    async def _offsets(self, node: int, members: Sequence[str]) -> dict[str, GroupOffsets]:
        try:
            connection = await self._to(node)
            version = connection.version(OFFSET_FETCH)
            together = version >= groups.OFFSETS_AT_ONCE
            asked = [members] if together else [[group] for group in members]
            found: dict[str, GroupOffsets] = {}
            for part in asked:
                body = groups.encode_fetch(version, part)
                found |= await ask(
                    connection,
                    OFFSET_FETCH,
                    body,
                    version,
                    lambda reader, part=part: groups.decode_fetch(version, reader, part),
                )
        except MirrordError:
            return {group: GroupOffsets(NETWORK, {}) for group in members}
        return {group: found.get(group, GroupOffsets(NETWORK, {})) for group in members}

    async def _commit(
        self, node: int, group: str, commits: Mapping[TopicAndPartition, CommittedOffset]
    ) -> dict[TopicAndPartition, int]:
        try:
            connection = await self._to(node)
            version = connection.version(OFFSET_COMMIT)
            body = groups.encode_commit(group, commits)
            errors = await ask(connection, OFFSET_COMMIT, body, version, groups.decode_commit)
        except MirrordError:
            return dict.fromkeys(commits, NETWORK)
        return {place: errors.get(place, NETWORK) for place in commits}

    async def _by_home(self, wanted: Iterable[str]) -> tuple[dict[int, list[str]], dict[str, int]]:
        """Return the groups of each coordinator, and the error code for each group whose coordinator is unknown."""
        unknown = [group for group in wanted if group not in self._homes]
        errors: dict[str, int] = {}
        for part in _parts(unknown, AT_ONCE):
            for group, found in (await self._find(part)).items():
                if found.error:
                    errors[group] = found.error
                else:
                    self._homes[group] = found.node
        at_homes: dict[int, list[str]] = {}
        for group in wanted:
            if group in self._homes:
                at_homes.setdefault(self._homes[group], []).append(group)
            else:
                errors.setdefault(group, int(ErrorCode.COORDINATOR_NOT_AVAILABLE))
        return at_homes, errors

    async def _find(self, members: Sequence[str]) -> dict[str, groups.Coordinator]:
        connection = await self._view.any_broker()
        version = connection.version(FIND_COORDINATOR)
        asked = [members] if version >= groups.COORDINATORS_AT_ONCE else [[group] for group in members]
        found: dict[str, groups.Coordinator] = {}
        for part in asked:
            found |= await ask(
                connection,
                FIND_COORDINATOR,
                groups.encode_find(version, part),
                version,
                lambda reader, part=part: groups.decode_find(version, reader, part),
            )
        return found

    async def _to(self, node: int) -> Connection:
        return await self._view.link(node, "groups").get()

    def _forget_moved(self, answers: Iterable[tuple[str, int]]) -> None:
        moved = {group for group, error in answers if error in _MOVED}
        for group in moved:
            self._homes.pop(group, None)
        if moved:
            self._view.refresh()


def _parts(items: Iterable[T], size: int) -> Iterable[list[T]]:
    every = list(items)
    return (every[first : first + size] for first in range(0, len(every), size))
