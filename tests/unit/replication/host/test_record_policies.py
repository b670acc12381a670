"""Policies of records: what is copied, how it is changed, and what is recorded about the rest."""

import random
from collections.abc import Sequence
from typing import Any

import pytest

from mirrord.config.flow_features import RecordsConfig
from mirrord.config.limits import LimitsConfig
from mirrord.config.loader import load_text
from mirrord.config.schema import FlowConfig
from mirrord.config.writer import conf_toml
from mirrord.kafka.protocol.record import DecodedRecord
from mirrord.kafka.records.record_decoding import decode
from mirrord.kafka.records.steps import finish
from mirrord.ledger.facts.core import Verdict
from mirrord.model.errors import ConfigError
from mirrord.replication.host.lane_rebuilds import LaneRebuilds
from mirrord.replication.host.record_policies import RecordPolicies
from mirrord.replication.lane.intake import take
from mirrord.replication.lane.second_path import ALL, NOT_YET, Decided, PolicyRefused, RebuildRequest, RebuiltBatch
from mirrord.replication.lane.signals import Batch, Chunk
from policies.policy_trial import LOADING
from tests.unit.replication.host.test_batch_rebuild import BASE, PRODUCER, batch, records
from tests.unit.replication.lane.test_answers import copying

SAMPLE = "tests.fixtures.sample_policies"
MIB = 1 << 20
CONF = """[clusters.eu]
bootstrap = "eu:9092"
[clusters.us]
bootstrap = "us:9092"
[[flows]]
from = "eu"
to = "us"
topics = ["orders", "payments.*"]
[flows.records]
"""


def shaping(**rules: Any) -> RecordPolicies:
    flow = FlowConfig(name="f", source="eu", target="us", topics=(".*",), records=RecordsConfig(**rules))
    return RecordPolicies(flow)


def shaped(
    rules: RecordPolicies, originals: Sequence[DecodedRecord], decided: Decided = NOT_YET, from_offset: int = 0
) -> RebuiltBatch:
    data = batch(originals)
    made = finish(
        rules.rebuilder("orders")(RebuildRequest(data, 0, len(data), from_offset, *PRODUCER, decided=decided))
    )
    assert made is not None
    return made


def copies(made: RebuiltBatch) -> list[DecodedRecord]:
    return decode(made.data, 0, len(made.data)) if made.pieces else []


def copies_of(made: Batch) -> list[DecodedRecord]:
    """The records of a batch to be written, at the source offsets that their values state."""
    return [
        record._replace(offset=BASE + int((record.value or b"v0")[1:]))
        for record in decode(bytearray(made.buffer), made.start, made.end)
    ]


def plain(count: int, **fields: Any) -> list[DecodedRecord]:
    return [
        DecodedRecord(BASE + at, 1_700_000_000_000, b"k%d" % at, b"v%d" % at, ())._replace(**fields)
        for at in range(count)
    ]


def test_a_filter_leaves_records_out_and_names_them() -> None:
    made = shaped(shaping(filter=f"{SAMPLE}:Odd"), plain(5))
    assert made.pieces == ((BASE + 1, 1), (BASE + 3, 1))
    assert made.left_out == tuple(Verdict(BASE + at, BASE + at + 1, "filtered") for at in (0, 2, 4))
    assert [record.value for record in copies(made)] == [b"v1", b"v3"]


def test_a_batch_of_which_nothing_is_left_is_recorded_as_one_range() -> None:
    made = shaped(shaping(filter="keys", filter_settings={"match": "no"}), plain(4), from_offset=BASE + 1)
    assert (made.pieces, made.data) == ((), b"")
    assert made.left_out == (Verdict(BASE + 1, BASE + 4, "filtered"),)


def test_a_transform_changes_what_it_may() -> None:
    made = shaped(shaping(transform=f"{SAMPLE}:Upper"), plain(3))
    assert made.pieces == ((BASE, 3),)
    assert [(record.key, record.value) for record in copies(made)] == [(b"k%d" % at, b"V%d" % at) for at in range(3)]
    assert made.newest_ms == 1_700_003_600_000


def test_decisions_in_the_ledger_are_not_requested_again() -> None:
    """Whatever a policy answers the next time: what is bound remains."""
    decided = Decided(((BASE, 2), (BASE + 4, 1)), BASE + 6)
    for _ in range(20):
        made = shaped(shaping(filter=f"{SAMPLE}:Fickle"), plain(6), decided)
        assert made.pieces == ((BASE, 2), (BASE + 4, 1))
        assert made.left_out == (Verdict(BASE + 2, BASE + 4, "filtered"), Verdict(BASE + 5, BASE + 6, "filtered"))
    assert shaped(shaping(filter=f"{SAMPLE}:Fickle"), plain(6), ALL).pieces == ((BASE, 6),)


def test_every_offset_is_copied_or_explained_once(seed: int) -> None:
    chance = random.Random(seed)
    originals = records(sorted(chance.sample(range(40), 25)), chance)
    made = shaped(shaping(filter=f"{SAMPLE}:Fickle", transform=f"{SAMPLE}:Upper"), originals)
    mapped = [offset for start, length in made.pieces for offset in range(start, start + length)]
    mapped += [offset for verdict in made.left_out for offset in range(verdict.start, verdict.end)]
    assert sorted(mapped) == [record.offset for record in originals]
    assert len(copies(made)) == sum(length for _, length in made.pieces)


def test_tombstones_and_headers() -> None:
    rules = shaping(filter="tombstones", transform="headers", transform_settings={"drop": ("a",), "mask": ("b",)})
    originals = plain(3, headers=[("a", b"1"), ("b", b"2"), ("c", b"3"), ("a", None)])
    originals[1] = originals[1]._replace(value=None)
    made = shaped(rules, originals)
    assert made.pieces == ((BASE, 1), (BASE + 2, 1))
    assert [list(record.headers) for record in copies(made)] == [[("b", b"***"), ("c", b"3")]] * 2


def test_keys() -> None:
    rules = shaping(filter="keys", filter_settings={"match": "k.*", "exclude": "k[13]"})
    assert shaped(rules, [*plain(4), DecodedRecord(BASE + 9, 5, None, b"v", ())]).pieces == ((BASE, 1), (BASE + 2, 1))


@pytest.mark.parametrize(
    ("rules", "line"),
    [
        ({"filter": f"{SAMPLE}:Odd", "filter_settings": {"raises": BASE + 2}}, "keeps raised KeyError: 'customer'"),
        ({"filter": f"{SAMPLE}:Odd", "filter_settings": {"wrong": BASE + 2}}, "keeps returned"),
        ({"transform": f"{SAMPLE}:Upper", "transform_settings": {"answer": "text"}}, "allowed: bytes or None"),
        ({"transform": f"{SAMPLE}:Upper", "transform_settings": {"answer": "nothing"}}, "a filter decides"),
        ({"transform": f"{SAMPLE}:Upper", "transform_settings": {"answer": "half a character"}}, "with the header"),
        ({"filter": "no.such:Class"}, "a policy cannot be used here"),
    ],
)
def test_no_answer_halts_before_the_record(rules: dict[str, Any], line: str) -> None:
    with pytest.raises(PolicyRefused, match=line) as refused:
        shaped(shaping(**rules), plain(4))
    assert refused.value.offset in {BASE, BASE + 2, 0}


def test_a_policy_fault_can_reject_the_record() -> None:
    rules = shaping(filter=f"{SAMPLE}:Odd", filter_settings={"raises": BASE + 3}, on_error="reject")
    made = shaped(rules, plain(6))
    assert made.pieces == ((BASE + 1, 1), (BASE + 5, 1))
    assert Verdict(BASE + 3, BASE + 4, "rejected") in made.left_out


def test_only_the_topics_that_are_named() -> None:
    rules = shaping(filter="tombstones", topics=("pay.*",))
    assert (rules.concerns("payments"), rules.concerns("orders")) == (True, False)
    assert shaping().concerns("payments") is False
    assert shaping().fingerprint == "read_committed"
    assert rules.fingerprint != shaping(filter="tombstones", filter_settings={"a": 1}).fingerprint


def test_the_configuration() -> None:
    text = (
        CONF
        + 'topics = ["orders"]\nfilter = "keys"\non_error = "reject"\n[flows.records.filter_settings]\nmatch = "a.*"\n'
    )
    config = load_text(text, "conf.toml", LOADING)
    expected = RecordsConfig(topics=("orders",), filter="keys", filter_settings={"match": "a.*"}, on_error="reject")
    assert config.flows[0].records == expected
    assert load_text(conf_toml(config), "again", LOADING) == config


@pytest.mark.parametrize(
    ("lines", "fault"),
    [
        ('filter = "tombstone"', 'did you mean "tombstones"?'),
        ('transform = "tombstones"', 'allowed: "headers"'),
        (f'filter = "{SAMPLE}:Upper"', "the class has no method keeps"),
        (f'filter = "{SAMPLE}:KeyAndValue"', "does not take one record, which is all it gets"),
        ('filter = "keys"\nfilter_settings = { match = "(" }', 'match: "(" is not a regular expression'),
        ('filter = "keys"\nfilter_settings = { exclude = 5 }', "exclude: found 5; allowed: a regular expression"),
        # Taken for letters, it would mask nothing.
        ('transform = "headers"\ntransform_settings = { mask = "user" }', 'mask: found "user"; allowed: a list of'),
        ('transform = "headers"\ntransform_settings = { drop = [1] }', "drop: found"),
        ('filter = "keys"\nfilter_settings = { matches = "a" }', 'did you mean "match"?'),
        ('filter = "keys"\nfilter_settings = { matches = "a" }', 'found "keys"; it takes no setting "matches"'),
        ('filter = "tombstones"\nfilter_settings = { a = 1 }', 'it takes no setting "a"; allowed: no settings'),
        ('filter = "keys"', 'found "keys"; it excludes nothing without a setting; allowed: match, exclude, or both'),
        ('transform = "headers"\ntransform_settings = { drop = [] }', 'found "headers"; it changes nothing without'),
        ('filter_settings = { match = "a" }', "there is no filter that takes them"),
        ('on_error = "skip"', 'allowed: "halt" or "reject"'),
    ],
)
def test_policy_settings_that_are_refused_when_the_file_is_read(lines: str, fault: str) -> None:
    with pytest.raises(ConfigError) as raised:
        load_text(CONF + lines + "\n", "conf.toml", LOADING)
    assert fault in str(raised.value)


@pytest.mark.parametrize(("bad", "kept"), [(0, []), (2, [1]), (4, [1, 3]), (5, [1, 3])])
def test_a_record_without_an_answer_is_the_only_one_that_waits(bad: int, kept: list[int]) -> None:
    """What precedes it in its batch is copied, or skipped by the filter; and no other record is named."""
    lane, _ = copying()
    rules = shaping(filter=f"{SAMPLE}:Odd", filter_settings={"raises": BASE + bad})
    lane.has_policies, lane.position, lane.rebuild = True, BASE, LaneRebuilds(rules.rebuilding, "eu")
    data, end = batch(plain(6)), BASE + 6
    _, unreadable = take(lane, Chunk(lane.asked, 0, end, end, 0, (), data, 0, len(data)))
    assert [record.offset - BASE for each in lane.ready for record in copies_of(each)] == kept
    assert unreadable is not None
    assert (unreadable.start, unreadable.end) == (BASE + bad, BASE + bad + 1)
    assert lane.position == BASE + bad


@pytest.mark.parametrize("rules", [RecordsConfig(), RecordsConfig(filter=f"{SAMPLE}:Odd")], ids=["plain", "filter"])
def test_a_lane_halts_before_a_batch_that_decompresses_to_more_than_its_flow_allows(rules: RecordsConfig) -> None:
    data, end = batch(plain(1, value=bytes(2 * MIB)), codec=4), BASE + 1

    def read(limit: int) -> tuple[str, int]:
        flow = FlowConfig("f", "eu", "us", (".*",), records=rules, limits=LimitsConfig(rebuild_bytes=limit))
        lane, _ = copying()
        lane.has_policies, lane.position = True, BASE
        rebuilding = RecordPolicies(flow).rebuilder("orders")
        lane.rebuild = lambda request: finish(rebuilding(request))
        _, unreadable = take(lane, Chunk(lane.asked, 0, end, end, 0, (), bytearray(data), 0, len(data)))
        return str(unreadable or ""), lane.position

    assert read(3 * MIB) == ("", end)
    why = "its records are larger than 1 MiB when they are decompressed, the limit of limits.rebuild_bytes"
    assert read(MIB) == (f"a batch whose records cannot be read ({why})", BASE)
