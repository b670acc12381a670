"""Reads all ledgers on one cluster, whichever daemons and configurations their flows belong to."""

from collections.abc import Callable
from contextlib import suppress

from mirrord.kafka.client.topic_admin import TopicAdmin
from mirrord.ledger.facts.core import Progress
from mirrord.ledger.state import FlowState, LaneState
from mirrord.ledger.state_topic_records import LedgerEnd
from mirrord.ledger.store.store import LedgerStore
from mirrord.model.errors import EnvironmentFault, MirrordError
from mirrord.model.names import LaneId, flow_of_ledger, ledger_topic, state_topic

ProgressByLane = dict[LaneId, Progress]


class ClusterLedgers:
    """All ledgers of one cluster. Each call to `read` determines again which ledgers exist."""

    def __init__(
        self, cluster: str, admin: TopicAdmin, open_ledger: Callable[[str, bool], LedgerStore], leave_out: str = ""
    ) -> None:
        """`cluster` is the alias of the cluster. The ledger of the flow `leave_out` is not read.

        `open_ledger` is called with a flow's name and returns a store for its ledger on this cluster. The store has not
        been opened yet. If the second argument of `open_ledger` is true, the store reads only the ledger topic and no
        state topic.
        """
        self._cluster = cluster
        self._admin = admin
        self._open_ledger = open_ledger
        self._leave_out = leave_out
        self._stores: dict[str, LedgerStore] = {}
        self._alone: set[str] = set()
        """Flows whose state topic does not exist. Their lanes are read from the ledger topic alone. The ledger topic is
        complete if no entries have been trimmed."""
        self._known: dict[str, LedgerEnd | None] = {}
        """For each flow, how far the ledger was known to extend when its store was closed."""

    def states(self) -> dict[str, FlowState]:
        """Return the state of each ledger as of the last read, by flow."""
        return {flow: store.state for flow, store in self._stores.items()}

    def lanes(self) -> list[tuple[str, FlowState, LaneState]]:
        """Return all lanes in these ledgers, each with its flow and the state of that flow."""
        return [(flow, state, lane) for flow, state in self.states().items() for lane in state.lanes.values()]

    async def read(self) -> dict[str, ProgressByLane]:
        """Read all ledgers to their ends. Return the progress records that were known before the read, by flow.

        Raises MirrordError.
        """
        try:
            topics = (await self._admin.describe()).topics
        except EnvironmentFault as error:
            raise EnvironmentFault(f"the topics of {self._cluster} cannot be listed: {error}") from error
        flows = {flow for name in topics if (flow := flow_of_ledger(name))} - {self._leave_out}
        alone = {flow for flow in flows if state_topic(flow) not in topics}
        await self._forget((self._stores.keys() - flows) | (self._stores.keys() & (alone ^ self._alone)))
        self._alone = alone
        progress: dict[str, ProgressByLane] = {}
        for flow in sorted(flows):
            try:
                store = await self._store(flow)
                # The progress records are copied first, and the ledger is read afterwards. The ledger therefore
                # explains all offsets below their resume positions.
                progress[flow] = dict(store.state.progress)
                await store.read_to_end()
            except MirrordError as error:
                await self._forget({flow} if self._failed(flow) else set())
                raise EnvironmentFault(_blocked(flow, self._cluster, error)) from error
        return progress

    async def close(self) -> None:
        """Stop reading and close all ledgers."""
        await self._forget(set(self._stores))
        await self._admin.close()

    def _failed(self, flow: str) -> bool:
        store = self._stores.get(flow)
        return store is not None and store.failure is not None

    async def _store(self, flow: str) -> LedgerStore:
        store = self._stores.get(flow)
        if store is None:
            store = self._open_ledger(flow, flow in self._alone)
            store.remember(self._known.get(flow))
            await store.open(read_only=True)
            self._stores[flow] = store
        return store

    async def _forget(self, flows: set[str]) -> None:
        for flow in flows:
            store = self._stores.pop(flow)
            self._known[flow] = store.known
            with suppress(MirrordError):
                await store.close()


def _blocked(flow: str, cluster: str, error: MirrordError) -> str:
    return (
        f"waiting for the ledger of flow {flow} on {cluster}, which may copy into this topic: {error}; if that flow "
        "never"
        f" copied into topics of this flow, delete {ledger_topic(flow)} there, otherwise `mirrord rebuild` restores it"
    )
