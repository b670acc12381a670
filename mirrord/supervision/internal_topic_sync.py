"""Keeps the configs of mirrord's own topics correct. If another client shortens their retention, they lose data."""

from collections.abc import Mapping

import structlog

from mirrord.config.schema import FlowConfig
from mirrord.kafka.client.config_and_acl_admin import UpkeepAdmin
from mirrord.kafka.client.topic_admin import ClusterTopics
from mirrord.kafka.rules.internal_topic_configs import few_replicas, wrong_settings
from mirrord.ledger.store.topics import LEDGER_SETTINGS, NEEDED_LEDGER_SETTINGS, NEEDED_STATE_SETTINGS, STATE_SETTINGS
from mirrord.model.errors import EnvironmentFault
from mirrord.model.names import dead_letter_topic, ledger_topic, state_topic
from mirrord.replication.dead_letters import topic

UNCLEAN = "unclean.leader.election.enable"

log = structlog.get_logger()


class OwnSettings:
    """The configs of one flow's topics on its target."""

    def __init__(self, flow: FlowConfig, target: UpkeepAdmin) -> None:
        self.remarks: tuple[str, ...] = ()
        """Problems that only an operator can fix, one line each."""
        self._flow = flow
        self._target = target
        self._logged: set[tuple[str, str, str]] = set()
        """Wrong values that were logged. Some brokers keep returning values other than those that were set."""

    async def round(self, target: ClusterTopics) -> None:
        """Correct wrong configs.

        Raises EnvironmentFault, also if the cluster refuses a correction, because facts may be deleted soon.
        """
        needed = {name: keys for name, keys in needed_settings(self._flow).items() if name in target.topics}
        lines = [few_replicas(target.topics[name], self._flow.target, target.brokers) for name in needed]
        self.remarks = tuple(line for line in lines if line)
        if not needed:
            return
        seen = await self._target.settings(needed)
        faults: list[str] = []
        for name, settings in seen.topics.items():
            values = {key: setting.value for key, setting in settings.items()}
            wrong = wrong_settings(needed[name], values, target.topics[name].replicas)
            if not wrong:
                continue
            refused = await self._target.alter({name: {each.key: each.must_be for each in wrong}})
            for each in wrong:
                if (name, each.key, each.value) not in self._logged:
                    log.warning("own_topic_setting", topic=name, key=each.key, was=each.value, now=each.must_be)
                    self._logged.add((name, each.key, each.value))
                if name in refused:
                    what = f"the topic {name} has {each.key}={each.value}, which loses facts; it must be {each.must_be}"
                    faults.append(f"{what} and cannot be set: {refused[name]}")
        if faults:
            raise EnvironmentFault("; ".join(faults))


def needed_settings(flow: FlowConfig) -> dict[str, Mapping[str, str]]:
    """Return the required configs of the topics that must keep everything, by topic name."""
    kept = {
        ledger_topic(flow.name): (LEDGER_SETTINGS, NEEDED_LEDGER_SETTINGS),
        state_topic(flow.name): (STATE_SETTINGS, NEEDED_STATE_SETTINGS),
        dead_letter_topic(flow.name): (topic.SETTINGS, NEEDED_LEDGER_SETTINGS),
    }
    return {name: {key: values[key] for key in (*keys, UNCLEAN)} for name, (values, keys) in kept.items()}
