"""The findings of `mirrord check` about the effective configs of topics and brokers."""

from mirrord.config.schema import ClusterConfig, Config
from mirrord.kafka.client.effective_configs import broker_settings, topic_settings
from mirrord.kafka.client.producer_expiry import producer_expiry_ms
from mirrord.kafka.rules.internal_topic_configs import MIN_IN_SYNC, ledger_findings
from mirrord.model.findings import Finding
from mirrord.model.names import dead_letter_topic
from mirrord.operations.advertised_brokers import ClusterSeen, any_node
from mirrord.operations.cluster_survey import FlowSurvey
from mirrord.supervision.internal_topic_sync import needed_settings
from mirrord.topics.rules.incompatible_configs import BROKER_NAMES, TopicPairConfigs, refusals


async def settings_findings(config: Config, survey: FlowSurvey, target_seen: ClusterSeen) -> list[Finding]:
    """Return findings about configs that would make the target refuse or rewrite records.

    For a target topic that does not exist yet, the brokers' default configs are examined. Raises Unreachable.
    """
    flow, preview = survey.flow, survey.preview
    timeout_s = config.runtime.request_timeout_ms / 1000
    targets = preview.plan.targets
    sources = sorted(set(targets.values()))
    theirs = await topic_settings(config.clusters[flow.source], sources, BROKER_NAMES, timeout_s) if sources else {}
    there = sorted(set(targets) & preview.target.topics.keys())
    cluster = config.clusters[flow.target]
    ours = await topic_settings(cluster, there, BROKER_NAMES, timeout_s) if there else {}
    defaults: dict[str, str] = {}
    node = any_node(target_seen)
    if node is not None and len(there) < len(targets):
        reported = await broker_settings(cluster, node, sorted(set(BROKER_NAMES.values())), timeout_s) or {}
        defaults = {name: reported[broker] for name, broker in BROKER_NAMES.items() if broker in reported}
    pairs = [
        TopicPairConfigs(
            source,
            target,
            theirs[source].values,
            ours[target].values if target in ours else defaults,
            theirs[source].own,
        )
        for target, source in sorted(targets.items())
        if source in theirs and (target in ours or target not in there)
    ]
    return list(refusals(flow, pairs))


async def expiry_ms(config: Config, target: ClusterSeen) -> int | None:
    """Return how long the target remembers an idle producer, in milliseconds.

    Return None if the survey has found no reachable broker on the target, or if mirrord lacks the permission to read
    the config that sets this time. Raises Unreachable if the target does not answer.
    """
    node = any_node(target)
    if node is None:
        return None
    timeout_s = config.runtime.request_timeout_ms / 1000
    return await producer_expiry_ms(config.clusters[target.alias], node, timeout_s)


async def own_topics_findings(cluster: ClusterConfig, survey: FlowSurvey, timeout_s: float) -> list[Finding]:
    """Return the findings of `mirrord check` about the topics that mirrord itself keeps on the target. Raises
    Unreachable."""
    flow, target = survey.flow, survey.preview.target
    needed = needed_settings(flow)
    del needed[dead_letter_topic(flow.name)]
    there = sorted(needed.keys() & target.topics.keys())
    keys = {key for name in needed for key in needed[name]} | {MIN_IN_SYNC}
    seen = await topic_settings(cluster, there, sorted(keys), timeout_s) if there else {}
    values = {name: settings.values for name, settings in seen.items()}
    return list(ledger_findings(flow, needed, target.topics, values, target.brokers))
