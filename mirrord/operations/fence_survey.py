"""Finds out beforehand whether a failover could fence off late batches of suspended processes at the target."""

import asyncio

from mirrord.config.schema import Config, FlowConfig
from mirrord.model.findings import Finding
from mirrord.operations.rules.required_acls import KAFKA_CLUSTER
from mirrord.supervision.failover.producer_fence import FenceObstacle, fence_obstacle
from mirrord.supervision.rules.producer_fence import NOT_FENCED

_WHEN = f"after a failover, {NOT_FENCED}"


async def fence_findings(config: Config, flow: FlowConfig) -> list[Finding]:
    """Return a note if the target would refuse to fence off late batches. Raises EnvironmentFault if it does not
    answer."""
    obstacle = await _obstacle(config, flow)
    if obstacle is None:
        return []
    do = "allow ALTER on the cluster (before Kafka 3.8: CLUSTER_ACTION), or accept it" if obstacle.is_permission else ""
    where = f"{flow.target}: cluster {KAFKA_CLUSTER}" if obstacle.is_permission else f"{flow.target}: its brokers"
    return [Finding(severity="note", flow=flow.name, where=where, what=f"{_WHEN}: {obstacle.line}", do=do)]


async def _obstacle(config: Config, flow: FlowConfig) -> FenceObstacle | None:
    timeout_s = config.runtime.request_timeout_ms / 1000
    return await fence_obstacle(flow.target, config.clusters[flow.target], timeout_s)


async def fence_remarks(config: Config) -> list[str]:
    """Return one line for each flow whose target would refuse to fence off late batches. Raises EnvironmentFault if a
    target does not answer."""
    obstacles = await asyncio.gather(*(_obstacle(config, flow) for flow in config.flows))
    return [
        f"{flow.name}: {_WHEN}: {obstacle.line}"
        for flow, obstacle in zip(config.flows, obstacles, strict=True)
        if obstacle is not None
    ]
