"""Reports the target topics whose configs mirrord has no permission to read.

A lane reads the `cleanup.policy` of its target topic only if its decision depends on the policy, which may be months
after the start. The missing permission is therefore reported in advance.
"""

from collections.abc import Collection

import structlog

from mirrord.config.schema import FlowConfig
from mirrord.kafka.client.config_and_acl_admin import UpkeepAdmin
from mirrord.model.errors import EnvironmentFault

_SHOWN = 3
_CONSEQUENCES = (
    "without this permission, mirrord does not know whether a target topic is compacted: if a target log loses records "
    "in an election, its partition may halt, and if records are deleted before mirrord has compared them, they count "
    "as copied"
)

log = structlog.get_logger()


class UnreadablePolicies:
    """Determines which target topics of one flow have configs that mirrord is not allowed to read."""

    def __init__(self, flow: FlowConfig, target: UpkeepAdmin) -> None:
        self.remarks: tuple[str, ...] = ()
        """One line for operators, or nothing if all configs can be read."""
        self._flow = flow
        self._target = target
        self._readable: set[str] = set()

    async def round(self, topics: Collection[str]) -> None:
        """Try to read the configs of these target topics. Topics whose configs were readable once are not examined
        again. If the cluster does not answer, the remarks do not change, because other loops report that the cluster
        does not answer."""
        self._readable &= set(topics)
        try:
            seen = await self._target.settings(sorted(set(topics) - self._readable))
        except EnvironmentFault:
            return
        self._readable |= seen.topics.keys()
        refused = sorted(name for name, why in seen.refused.items() if "AUTHORIZATION" in why)
        former, self.remarks = self.remarks, tuple(_lines(self._flow.target, refused))
        if self.remarks and self.remarks != former:
            log.warning("target_configs_unreadable", flow=self._flow.name, line=self.remarks[0])


def _lines(cluster: str, topics: list[str]) -> list[str]:
    if not topics:
        return []
    names = ", ".join(topics[:_SHOWN])
    others = f" and {len(topics) - _SHOWN} others" if len(topics) > _SHOWN else ""
    return [f"cluster {cluster}: DESCRIBE_CONFIGS is missing on {names}{others}; {_CONSEQUENCES}"]
