"""Creates admin clients for the clusters of a configuration, and stores for the ledgers of its flows."""

from mirrord.config.schema import Config, FlowConfig
from mirrord.kafka.client.config_and_acl_admin import KafkaUpkeepAdmin, UpkeepAdmin
from mirrord.kafka.client.topic_admin import KafkaTopicAdmin, TopicAdmin
from mirrord.ledger.store.kafka_log import KafkaLog
from mirrord.ledger.store.spill_file import run_memory
from mirrord.ledger.store.store import DEADLINE_SECONDS, LedgerStore
from mirrord.model.names import Alias
from mirrord.runtime.clock import Clock, SystemClock


class ClusterAccess:
    """Creates admin clients and ledger stores for a configuration. Tests use an object with in-memory clusters
    instead."""

    def __init__(self, config: Config, patience_s: float = DEADLINE_SECONDS) -> None:
        """Store the configuration. A ledger may take up to `patience_s` seconds to answer."""
        self._config = config
        self._patience_s = patience_s
        self.clock: Clock = SystemClock()

    def use(self, config: Config) -> None:
        """Use the clusters of this configuration from now on."""
        self._config = config

    def admin(self, alias: Alias) -> TopicAdmin:
        """Return a client for the topics of a cluster. It connects with its first request."""
        return KafkaTopicAdmin(self._config.clusters[alias], self._config.runtime.request_timeout_ms / 1000, alias)

    def upkeep(self, alias: Alias) -> UpkeepAdmin:
        """Return a client for the configs and ACLs of a cluster. It connects with its first request."""
        return KafkaUpkeepAdmin(self._config.clusters[alias], self._config.runtime.request_timeout_ms / 1000)

    def ledger(self, flow: FlowConfig) -> LedgerStore:
        """Return a store for a flow's ledger. The caller must open the store."""
        topics = KafkaLog(flow.name, self._config.clusters[flow.target], deadline_seconds=self._patience_s)
        return LedgerStore(topics, self.clock, deadline_seconds=self._patience_s, memory=run_memory(flow))
