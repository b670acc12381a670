"""What differs between the target and the source that was last seen."""

from mirrord.config.flow_features import SyncConfig
from mirrord.config.schema import FlowConfig
from mirrord.kafka.protocol.configs import Setting
from mirrord.ledger.last_seen.configs_and_acls import SeenAcls, SeenSourceConfigs
from mirrord.ledger.last_seen.quotas import SeenQuotas
from mirrord.ledger.state import FlowState
from mirrord.model.acls import AclRule
from mirrord.model.quotas import ClientQuota
from mirrord.recovery.rules.comparisons import NOT_RECORDED, compare_acls, compare_configs, compare_quotas
from mirrord.topics.acl_sync import topic_names
from mirrord.topics.rules.recreated_topic_names import NAMING_ALONE
from mirrord.topics.rules.topic_configs import plan_settings, recorded_configs, source_settings
from policies.acls import TopicNames
from policies.flow_policies import properties_of, selection_of

SOURCE = {
    "retention.ms": Setting("1000", own=True),
    "cleanup.policy": Setting("delete", own=False),
    "segment.bytes": Setting("100", own=False),
}
TARGET = {
    "retention.ms": Setting("2000", own=True),
    "cleanup.policy": Setting("compact", own=True),
    "segment.bytes": Setting("200", own=False),
    "only.there": Setting("1", own=True),
}


def flow(sync: SyncConfig = SyncConfig()) -> FlowConfig:  # noqa: B008 - it is immutable
    return FlowConfig(name="eu-us", source="eu", target="us", topics=("orders",), sync=sync)


def seen(config: FlowConfig) -> SeenSourceConfigs:
    return SeenSourceConfigs(500, {"orders": recorded_configs(SOURCE, properties_of(config))}, frozenset(SOURCE))


def test_what_is_recorded_leads_to_the_same_plan_as_the_source_itself() -> None:
    for sync in (SyncConfig(), SyncConfig(use_defaults_from="source")):
        rule = properties_of(flow(sync))
        known = source_settings(seen(flow(sync)).topics["orders"], SOURCE)
        assert plan_settings(known, TARGET, rule).changes == plan_settings(SOURCE, TARGET, rule).changes


def test_configs_that_decide_what_retention_deletes_are_recorded_although_they_are_not_synced() -> None:
    config = flow(SyncConfig(exclude_configs=("retention.*",)))
    recorded = {each.name: (each.value, each.own) for each in seen(config).topics["orders"]}
    assert recorded == {"cleanup.policy": ("delete", False), "retention.ms": ("1000", True)}
    found = compare_configs(config, seen(config), {"orders": "eu.orders"}, {"eu.orders": TARGET}, {})
    assert found.differences == ('eu.orders: cleanup.policy is "compact", and not set on the source',)


def test_configs_that_differ() -> None:
    found = compare_configs(flow(), seen(flow()), {"orders": "eu.orders"}, {"eu.orders": TARGET}, {})
    assert found.seen_ms == 500
    assert found.differences == (
        'eu.orders: cleanup.policy is "compact", and not set on the source',
        'eu.orders: retention.ms is "2000", and "1000" on the source',
    )
    found = compare_configs(flow(), seen(flow()), {"orders": "eu.orders"}, {}, {"eu.orders": "no permission"})
    assert found.differences == ("eu.orders: its configs cannot be read: no permission",)


def test_configs_that_are_not_compared() -> None:
    assert compare_configs(flow(SyncConfig(configs=False)), seen(flow()), {}, {}, {}).note == "sync.configs is false"
    assert compare_configs(flow(), SeenSourceConfigs(), {}, {}, {}).note == NOT_RECORDED


def rule(name: str, operation: str = "READ", principal: str = "User:ada") -> AclRule:
    return AclRule("TOPIC", "LITERAL", name, principal, "*", operation, "ALLOW")


def names() -> TopicNames:
    return topic_names(flow(), selection_of(flow()).selects, {"eu.orders": "orders"}, NAMING_ALONE)


def test_acls_that_differ() -> None:
    config = flow(SyncConfig(acls="read-only"))
    source = SeenAcls(700, frozenset({rule("orders"), rule("orders", principal="User:bob"), rule("orders", "WRITE")}))
    found = compare_acls(config, FlowState(), source, {rule("eu.orders")}, names, ["eu.orders"])
    assert found.seen_ms == 700
    assert found.differences == ("missing on the target: ALLOW READ on topic eu.orders for User:bob",)


def test_acls_that_are_not_compared() -> None:
    config = flow(SyncConfig(acls="exact"))
    assert compare_acls(flow(), FlowState(), SeenAcls(), (), names, ()).note == 'sync.acls is "off"'
    assert compare_acls(config, FlowState(), SeenAcls(), (), names, ()).note == NOT_RECORDED
    assert compare_acls(config, FlowState(), SeenAcls(refused="no"), (), names, ()).note == "no"
    assert compare_acls(config, FlowState(), SeenAcls(5), "the target: no", names, ()).note == "the target: no"


def quota(value: float, user: str | None = "ada", name: str = "producer_byte_rate") -> ClientQuota:
    return ClientQuota((("user", user),), name, value)


def test_quotas_that_differ() -> None:
    same = quota(5, "eve")
    source = SeenQuotas(900, frozenset({quota(2), quota(3, None), same}))
    found = compare_quotas(source, {quota(1), quota(12.5, name="request_percentage"), same})
    assert found.seen_ms == 900
    assert found.differences == (
        "missing on the target: producer_byte_rate=3 for user <default>",
        "only on the target: request_percentage=12.5 for user ada",
        "producer_byte_rate for user ada is 1 on the target, and 2 on the source",
    )


def test_the_default_of_all_users_is_not_a_user() -> None:
    found = compare_quotas(SeenQuotas(900, frozenset({quota(2, None)})), {quota(2, "")})
    assert len(found.differences) == 2


def test_quotas_that_are_not_compared() -> None:
    assert compare_quotas(SeenQuotas(), ()).note == NOT_RECORDED
    assert compare_quotas(SeenQuotas(refused="no"), ()).note == "no"
    assert compare_quotas(SeenQuotas(5), "the target: no").note == "the target: no"
    assert compare_quotas(SeenQuotas(5, refused="no"), ()).differences == ()
