"""Corrects the configs of a flow's ledger topic, state topic and dead-letter topic. These topics would lose data if
another client shortened their retention."""

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
    """Corrects the configs of the topics that mirrord keeps for one flow on its target cluster."""

    def __init__(self, flow: FlowConfig, target: UpkeepAdmin) -> None:
        self.remarks: tuple[str, ...] = ()
        """Problems that only an operator can fix, one line each."""
        self._flow = flow
        self._target = target
        self._logged: set[tuple[str, str, str]] = set()
        """The incorrect configs that have been logged, as (topic, key, value). Each is logged only once, because some
        brokers keep returning a value that differs from the one that was set."""

    async def round(self, target: ClusterTopics) -> None:
        """Read the configs of these topics, and correct those that are wrong.

        Raises EnvironmentFault if the cluster does not answer, or if it refuses a correction. A refused correction is
        serious, because the topic may lose records while its configs are wrong.
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
    """Return the required configs of the topics that must keep all their records, by topic name."""
    kept = {
        ledger_topic(flow.name): (LEDGER_SETTINGS, NEEDED_LEDGER_SETTINGS),
        state_topic(flow.name): (STATE_SETTINGS, NEEDED_STATE_SETTINGS),
        dead_letter_topic(flow.name): (topic.SETTINGS, NEEDED_LEDGER_SETTINGS),
    }
    return {name: {key: values[key] for key in (*keys, UNCLEAN)} for name, (values, keys) in kept.items()}
