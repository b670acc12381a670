"""The objects that all flows of a daemon share."""

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
from mirrord.supervision.unrecorded_copies import FindWritten
from mirrord.supervision.upgrade.incoming import Succession
from mirrord.topics.topic_claims import Claims


class Services(NamedTuple):
    """The services that each flow supervisor gets from its daemon: shared objects, and functions that create
    clients."""

    config: Config
    engine: Engine
    holder: Holder
    clock: Clock
    claims: Claims
    watches: dict[Alias, ClusterWatch]
    admin: Callable[[Alias], TopicAdmin]
    """Returns a new admin client for a cluster. Each flow creates separate clients."""
    upkeep: Callable[[Alias], UpkeepAdmin]
    """Returns a new client that changes configs and ACLs and deletes topics on a cluster. Each flow creates separate
    clients."""
    mm2: Callable[[FlowConfig], Mm2Upkeep | None]
    """Returns a new `Mm2Upkeep` for a flow, or None if the flow writes no records for MirrorMaker 2's clients."""
    ledger: Callable[[FlowConfig], LedgerStore]
    """Returns a new, unopened ledger store for a flow. Each attempt to run the flow uses a new store."""
    probe: Callable[[FlowConfig, TargetProbed | None], Awaitable[TargetProbed]]
    """Probes the brokers of a flow's target, unless the result of an earlier probe is still valid. Raises NotProbed."""
    find_written: FindWritten
    succession: Succession | None
    """The takeover of the flows from the daemon that this daemon replaces. None if it replaces no daemon."""
    superseded: asyncio.Event
    """Set when another process of this daemon has taken over. In that case, this process must exit."""
