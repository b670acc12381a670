"""The services that the flows of one daemon share."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from mirrord.config.schema import Config, FlowConfig
from mirrord.kafka.client.config_and_acl_admin import UpkeepAdmin
from mirrord.kafka.client.reachability import ClusterWatch
from mirrord.kafka.client.topic_admin import TopicAdmin
from mirrord.ledger.facts.core import Holder, TargetProbed
from mirrord.ledger.store.store import LedgerStore
from mirrord.mm2.client_records import Mm2Upkeep
from mirrord.model.names import Alias
from mirrord.runtime.clock import Clock
from mirrord.supervision.fleet.engine import Engine
from mirrord.supervision.upgrade.incoming import Succession
from mirrord.topics.topic_claims import Claims


class Services(NamedTuple):
    """The services that the flows of one daemon share."""

    config: Config
    engine: Engine
    holder: Holder
    clock: Clock
    claims: Claims
    watches: dict[Alias, ClusterWatch]
    admin: Callable[[Alias], TopicAdmin]
    """Returns a new admin client for each flow."""
    upkeep: Callable[[Alias], UpkeepAdmin]
    """Returns a new upkeep client for each flow."""
    mm2: Callable[[FlowConfig], Mm2Upkeep | None]
    """Returns a new instance for each flow; None if the flow writes nothing for MirrorMaker 2's clients."""
    ledger: Callable[[FlowConfig], LedgerStore]
    """Returns a new ledger store for each attempt; it is not opened yet."""
    probe: Callable[[FlowConfig, TargetProbed | None], Awaitable[TargetProbed]]
    """Probes the target's brokers, given the result of an earlier probe. Raises NotProbed."""
    succession: Succession | None
    """The daemon that this one replaces."""
    superseded: asyncio.Event
    """Set when another process of this daemon is found to have taken over: this process has nothing left to do."""
