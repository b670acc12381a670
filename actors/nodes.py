"""The nodes of a Ray cluster on which replicators can run, as Ray knows them.

A node without cores for work is left out: the head of a cluster is often one. That Ray has marked a node dead says that
it cannot be reached; its processes may live on.
"""

import asyncio
from typing import Any, cast

import ray
import structlog
from ray.exceptions import RayError

EVERY_S = 1.0

log = structlog.get_logger()

_ray: Any = ray


class Nodes:
    """What Ray told last."""

    def __init__(self) -> None:
        """Asks Ray, for milliseconds."""
        self.cores = _living()
        """The cores of each living node, by its id; a node that has less than one counts as one."""

    async def follow(self) -> None:
        """Until it is cancelled."""
        while True:
            await asyncio.sleep(EVERY_S)
            try:
                cores = await asyncio.to_thread(_living)
            except RayError as error:
                log.warning("nodes_not_known", error=str(error))
                continue
            for node in self.cores.keys() - cores.keys():
                log.warning("node_lost", node=node)
            for node in cores.keys() - self.cores.keys():
                log.info("node_joined", node=node, cores=cores[node])
            self.cores = cores


def this_node() -> str:
    """The id of the node that this process runs on."""
    return cast(str, _ray.get_runtime_context().get_node_id())


def _living() -> dict[str, int]:
    nodes = cast(list[dict[str, Any]], _ray.nodes())
    cores = {node["NodeID"]: node["Resources"].get("CPU", 0.0) for node in nodes if node["Alive"]}
    return {node: max(1, int(count)) for node, count in cores.items() if count > 0}
