"""The client quotas of the source that are known after the source is gone."""

import msgspec

from mirrord.ledger.facts.last_seen import LastSeen
from mirrord.ledger.last_seen import quotas
from mirrord.ledger.last_seen.quotas import SeenQuotas, quota_records, seen_quotas
from mirrord.ledger.last_seen.records import CHECKED_MS
from mirrord.ledger.state import FlowState
from mirrord.model.quotas import ClientQuota
from tests.unit.ledger.last_seen.test_last_seen_configs import save

DEFAULT = ClientQuota((("client-id", None), ("user", None)), "request_percentage", 12.5)


def quota(user: str | None, value: float = 1.0) -> ClientQuota:
    return ClientQuota((("user", user),), "producer_byte_rate", value)


def test_quotas_are_written_when_they_change_and_now_and_then() -> None:
    ledger = FlowState()
    assert seen_quotas(ledger) == SeenQuotas()
    every = {quota("ada"), quota(None), quota("ada", 2.0), DEFAULT}
    save(ledger, quota_records(ledger, every, "", 1, 1_000))
    assert seen_quotas(ledger) == SeenQuotas(1_000, frozenset(every))
    assert quota_records(ledger, every, "", 1, 1_000 + CHECKED_MS - 1) == []
    assert save(ledger, quota_records(ledger, every, "", 1, 1_000 + CHECKED_MS)) == 1
    assert save(ledger, quota_records(ledger, every - {DEFAULT}, "", 1, 1_001 + CHECKED_MS)) == 2
    assert seen_quotas(ledger).quotas == every - {DEFAULT}
    save(ledger, quota_records(ledger, (), "", 1, 1_002 + CHECKED_MS))
    assert seen_quotas(ledger) == SeenQuotas(1_002 + CHECKED_MS)


def test_quotas_that_cannot_be_read_stay_in_force() -> None:
    ledger = FlowState()
    assert save(ledger, quota_records(ledger, (), "not authorized", 1, 500)) == 1
    assert seen_quotas(ledger) == SeenQuotas(-1, frozenset(), "not authorized")
    save(ledger, quota_records(ledger, {quota("ada")}, "", 1, 1_000))
    assert save(ledger, quota_records(ledger, (), "not authorized", 1, 2_000)) == 1
    assert quota_records(ledger, (), "not authorized", 1, 3_000) == []
    assert seen_quotas(ledger) == SeenQuotas(1_000, frozenset({quota("ada")}), "not authorized")


def test_too_many_quotas_are_not_recorded() -> None:
    ledger = FlowState()
    many = {quota(f"user-{number}") for number in range(quotas.MOST_QUOTAS + 1)}
    assert save(ledger, quota_records(ledger, many, "", 1, 500)) == 1
    assert seen_quotas(ledger) == SeenQuotas(refused="there are 20001 on the source; at most 20000 can be recorded")


def test_a_record_of_an_older_version_has_no_quotas() -> None:
    old = msgspec.msgpack.encode(msgspec.to_builtins(LastSeen(5, refused="no"))[:-1])
    assert msgspec.msgpack.decode(old, type=LastSeen) == LastSeen(5, refused="no")


def test_an_older_version_reads_records_with_quotas() -> None:
    class OldLastSeen(msgspec.Struct, frozen=True, array_like=True):
        at_ms: int

    new = msgspec.msgpack.encode(LastSeen(5, quotas=(DEFAULT,)))
    assert msgspec.msgpack.decode(new, type=OldLastSeen) == OldLastSeen(5)
