"""The configs and ACLs of the source that are known after the source is gone."""

from collections.abc import Sequence

from mirrord.ledger.codec import decode_state, encode_state
from mirrord.ledger.facts.core import Progress
from mirrord.ledger.facts.last_seen import SeenConfig
from mirrord.ledger.last_seen.configs_and_acls import (
    SeenAcls,
    SeenSourceConfigs,
    acl_records,
    config_records,
    seen_acls,
    seen_configs,
)
from mirrord.ledger.last_seen.records import CHECKED_MS
from mirrord.ledger.state import FlowState
from mirrord.ledger.state_topic_records import state_key
from mirrord.model.acls import AclRule

RETENTION = SeenConfig("retention.ms", "1000", own=True)
KNOWN = frozenset({"retention.ms", "cleanup.policy"})


def rule(name: str, operation: str = "READ") -> AclRule:
    return AclRule("TOPIC", "LITERAL", name, "User:ada", "*", operation, "ALLOW")


def save(ledger: FlowState, records: Sequence[Progress]) -> int:
    for record in records:
        known = decode_state(state_key(record), encode_state(record))
        assert isinstance(known, Progress)
        assert ledger.accept_progress(known)
    return len(records)


def test_configs_are_written_when_they_change_and_now_and_then() -> None:
    ledger = FlowState()
    assert seen_configs(ledger) == SeenSourceConfigs()
    seen = SeenSourceConfigs(topics={"orders": (RETENTION,), "bills": ()}, known=KNOWN)
    assert save(ledger, config_records(ledger, seen, 1, 1_000)) == 3
    assert seen_configs(ledger) == seen._replace(at_ms=1_000)
    assert config_records(ledger, seen, 1, 1_000 + CHECKED_MS - 1) == []
    assert save(ledger, config_records(ledger, seen, 1, 1_000 + CHECKED_MS)) == 1
    # A clock that was set back does not make them look newer for ever.
    assert save(ledger, config_records(ledger, seen, 1, 500)) == 1
    changed = seen._replace(topics={"orders": (SeenConfig("retention.ms", None, own=False),)})
    assert save(ledger, config_records(ledger, changed, 1, 600)) == 3
    assert seen_configs(ledger) == changed._replace(at_ms=600)


def test_acls_that_cannot_be_read_stay_in_force() -> None:
    ledger = FlowState()
    assert save(ledger, acl_records(ledger, (), "not authorized", 1, 500)) == 1
    assert seen_acls(ledger) == SeenAcls(-1, frozenset(), "not authorized")
    rules = {rule("orders"), rule("bills"), rule("orders", "WRITE")}
    save(ledger, acl_records(ledger, rules, "", 1, 1_000))
    assert seen_acls(ledger) == SeenAcls(1_000, frozenset(rules))
    assert save(ledger, acl_records(ledger, (), "not authorized", 1, 2_000)) == 1
    assert acl_records(ledger, (), "not authorized", 1, 3_000) == []
    assert seen_acls(ledger) == SeenAcls(1_000, frozenset(rules), "not authorized")
    assert save(ledger, acl_records(ledger, rules, "", 1, 4_000)) == 1
    assert seen_acls(ledger) == SeenAcls(4_000, frozenset(rules))
    save(ledger, acl_records(ledger, (), "", 1, 5_000))
    assert seen_acls(ledger) == SeenAcls(5_000)
