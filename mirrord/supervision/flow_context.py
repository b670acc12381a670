"""What the flows of one daemon share."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from mirrord.config.schema import Config, FlowConfig
from mirrord.kafka.client.config_admin import UpkeepAdmin
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
    """What the flows of one daemon share."""

    config: Config
    engine: Engine
    holder: Holder
    clock: Clock
    claims: Claims
    watches: dict[Alias, ClusterWatch]
    admin: Callable[[Alias], TopicAdmin]
    """A new one for each flow."""
    upkeep: Callable[[Alias], UpkeepAdmin]
    """A new one for each flow."""
    mm2: Callable[[FlowConfig], Mm2Upkeep | None]
    """A new one for each flow; None: it writes nothing for MirrorMaker 2's clients."""
    ledger: Callable[[FlowConfig], LedgerStore]
    """A new one, not opened yet, for each try."""
    probe: Callable[[FlowConfig, TargetProbed | None], Awaitable[TargetProbed]]
    """What the target's brokers are found to do, given what was found before. Raises NotProbed."""
    succession: Succession | None
    """The daemon that this one replaces."""
    superseded: asyncio.Event
    """Set when another process of this daemon is found to go on: this one has nothing to do any more."""
