"""The Ray nodes on which replicators can run, as reported by Ray.

Nodes that offer no cores to actors are omitted; the head node of a cluster is often one of them. If Ray has marked a
node as dead, Ray cannot reach the node, but the node's processes may still be alive.
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
    """The live nodes of the Ray cluster that have cores, according to Ray's latest answer."""

    def __init__(self) -> None:
        """Ask Ray for the nodes. The call blocks for a few milliseconds."""
        self.cores = _living()
        """The number of cores of each live node, by node id. A node with less than one core counts as having one."""

    async def follow(self) -> None:
        """Update `cores` every second until cancelled."""
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
    """Return the id of the node that this process runs on."""
    return cast(str, _ray.get_runtime_context().get_node_id())


def _living() -> dict[str, int]:
    nodes = cast(list[dict[str, Any]], _ray.nodes())
    cores = {node["NodeID"]: node["Resources"].get("CPU", 0.0) for node in nodes if node["Alive"]}
    return {node: max(1, int(count)) for node, count in cores.items() if count > 0}
