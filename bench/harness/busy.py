"""A daemon with two replicators that copies one busy topic, and readers of both sides, for moves and kills."""

import time
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Literal, NamedTuple

from bench.harness.arrivals import Stream
from bench.harness.clusters import Admin
from bench.harness.daemon import Daemon, Settings, target_name
from bench.harness.load import Topic
from mirrord.lab.cluster import Cluster
from mirrord.lab.copy_checker import TopicPair
from mirrord.model.status import FlowStatus

REPLICATORS = 2
WARM_UP_S = 5.0
START_S = 180.0


class BusyLoad(NamedTuple):
    """The load of a busy topic, and what else its flow is configured with."""

    partitions: int
    records_per_s: int
    flow_more: str = ""
    """Additional lines of the flow."""


class BusyTopic:
    """One busy topic on two clusters. The daemon uses its own folder, and the flow has the given name."""

    def __init__(
        self,
        source: Cluster,
        target: Cluster,
        flow: str,
        engine: Literal["ray", "process"],
        folder: Path,
        load: BusyLoad,
    ) -> None:
        self.pair = TopicPair(f"{flow}.busy", target_name(f"{flow}.busy"))
        self._partitions = load.partitions
        self._records_per_s = load.records_per_s
        self._bootstraps = source.bootstrap, target.bootstrap
        settings = Settings(
            source=source.bootstrap,
            target=target.bootstrap,
            topics=self.pair.source,
            engine=engine,
            flow=flow,
            replicators=REPLICATORS,
            flow_more=load.flow_more,
        )
        self.daemon = Daemon(folder, settings)

    @contextmanager
    def flowing(self) -> Generator[Stream]:
        """Run from warm caches until the block ends; the daemon ends with it. Raises EnvironmentFault."""
        Admin(self._bootstraps[0]).create([Topic(self.pair.source, self._partitions, "none")])
        with ExitStack() as everything:
            everything.callback(self.daemon.stop)
            self.daemon.start()
            self.settled()
            names = (self.pair.source, self.pair.target)
            stream = Stream(*self._bootstraps, names, self._partitions, self._records_per_s)
            everything.enter_context(stream)
            time.sleep(WARM_UP_S)
            yield stream

    def settled(self, replicators: int = REPLICATORS, patience_s: float = START_S) -> FlowStatus:
        """Wait until all lanes copy in this number of replicators, each of which has some. Raises EnvironmentFault."""
        what = f"lanes on {replicators} replicators"
        return self.daemon.wait_for(what, _settled_on(self._partitions, replicators), patience_s)


def _settled_on(partitions: int, replicators: int) -> Callable[[FlowStatus], bool]:
    def settled(flow: FlowStatus) -> bool:
        hosts = {lane.host for lane in flow.lanes}
        return flow.totals.lanes == {"copying": partitions} and len(hosts) == len(flow.replicators) == replicators

    return settled
