"""Determines which topics a flow would copy with a different configuration, without making any changes."""

import asyncio
from collections.abc import Callable

from mirrord.config.schema import FlowConfig
from mirrord.kafka.client.topic_admin import TopicAdmin
from mirrord.model.names import Alias
from mirrord.topics.discovery import Discovery
from mirrord.topics.topic_claims import Claims


async def topics_that_change(
    old: FlowConfig, new: FlowConfig, admin: Callable[[Alias], TopicAdmin], claims: Claims
) -> list[str]:
    """Return a line for each source topic that the two configurations treat differently. Either only one of them copies
    the topic, or they copy it into different target topics.

    `claims` contains the flow's ledger, if the ledger has been read. Raises EnvironmentFault if a cluster does not
    answer.
    """
    source, target = (admin(alias) for alias in (new.source, new.target))
    try:
        known = claims.of_flow(new.name)
        plans = [(await Discovery(each, source, target, known).preview()).plan for each in (old, new)]
    finally:
        await asyncio.gather(source.close(), target.close())
    before, after = ({source: target for target, source in plan.targets.items()} for plan in plans)
    lines = [f"starts copying {topic} into {name}" for topic, name in after.items() if before.get(topic) != name]
    lines += [f"stops copying {topic} into {name}" for topic, name in before.items() if after.get(topic) != name]
    return sorted(lines)
