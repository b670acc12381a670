"""Skipped records in the dead-letter topic: what their headers say, and when nothing is retried."""

import msgspec
import pytest

from mirrord.config.loader import load_text
from mirrord.config.schema import Config
from mirrord.kafka.protocol.configs import Setting
from mirrord.kafka.rules.topic import Topic
from mirrord.ledger.facts.base import Origin
from mirrord.ledger.quarantine import KEPT, Parked, Quarantine
from mirrord.ledger.standing_orders import Order
from mirrord.ledger.state import FlowState, LaneState
from mirrord.model.errors import ConfigError, EnvironmentFault
from mirrord.model.names import LaneKey, TopicId, TopicPartition
from mirrord.operations import flow_lookup, quarantine_parking
from mirrord.operations.quarantine_entries import FoundEntry, find
from mirrord.operations.quarantine_parking import bring_back, park
from mirrord.operations.status_report import LedgerView
from mirrord.replication.dead_letters.records import (
    Letter,
    LetterPlace,
    Returned,
    TargetPosition,
    headers_of,
    letters_words,
    understood,
)
from mirrord.replication.dead_letters.replayed import parked_from
from mirrord.replication.dead_letters.topic import Lying
from tests.unit.cli.test_cli import CONF

ADA = Origin("ada@host", "too large", 0)
KEY = LaneKey(TopicId("source"), 3, TopicId("target"))
PLACE = LetterPlace("orders", 3, 5, KEY.id)
LEFT_OUT = Parked(5, 7, 10, "refused", ADA, 2, 40)
ORDER = Order(verb="replay", name="orders-3", offset=5, by="ada@host", reason="it fits now")


@pytest.mark.parametrize("own", [(), (("trace", b"1"), ("none", None)), headers_of(PLACE, ADA, ())])
def test_headers_of_ours_follow_those_of_the_record(own: list[tuple[str, bytes | None]]) -> None:
    headers = headers_of(PLACE, ADA, own)
    assert headers[: len(own)] == list(own)
    assert understood(headers) == Letter(PLACE, headers[: len(own)])
    assert understood(headers_of(PLACE, ADA, (), "copy-3 offset 9")) == Letter(PLACE, [], "copy-3 offset 9")


def test_what_is_not_ours_is_no_letter() -> None:
    assert understood(()) is None
    assert understood((("trace", b"1"),)) is None
    headers = headers_of(PLACE, ADA, ())
    assert understood(headers[1:]) is None
    assert understood([*headers, ("trace", b"1")]) is None
    assert understood([(name, b"x" if name == "mirrord.offset" else value) for name, value in headers]) is None


def test_a_receipt_names_a_place() -> None:
    there = TargetPosition(TopicPartition("eu.my-orders", 3), 9)
    assert Returned(5, str(there)).position == there
    for where in ("", "elsewhere", "eu.orders-3", "eu.orders offset 9", "eu.orders-3 offset -9", "-3 offset 9"):
        assert Returned(5, where).position is None


@pytest.mark.parametrize(
    ("entries", "first"),
    [
        ((), None),
        ((Parked(1, 2, 10, "refused", ADA),), None),
        ((Parked(1, 2, 10, "refused", ADA, 1, 40), Parked(5, 7, 10, "refused", ADA, 2, 30)), 30),
        ((Parked(1, 2, 10, "refused", ADA, 1, 40), Parked(5, 7, 10, "refused", ADA, 2)), -1),
        (tuple(Parked(at, at + 1, 10, "refused", ADA, 1, at) for at in range(7, 7 + KEPT)), -1),
    ],
)
def test_from_where_on_receipts_are_read(entries: Quarantine, first: int | None) -> None:
    lane = LaneState(KEY, "orders", "orders", 1, 0, "", "sequence", quarantine=entries)
    assert parked_from(FlowState(lanes={KEY.id: lane})) == first


def test_the_receipt_in_words() -> None:
    assert [letters_words(count) for count in (-1, 0, 1, 2)] == [
        "not parked",
        "0 records parked",
        "1 record parked",
        "2 records parked",
    ]


class Clusters:
    """Fake clusters and a fake dead-letter topic, in place of `ClusterAccess` and `DeadLetters`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.config = load_text(CONF, "conf.toml")
        self.quarantine: Quarantine = (LEFT_OUT,)
        self.flows: tuple[str, ...] = ("eu-us",)
        self.topics = {"orders": Topic("orders", KEY.target_topic_id, 4), "side": Topic("side", TopicId("side"), 2)}
        self.policy = "delete"
        self.lying = [5, 6]
        self.back: list[Returned] = []
        monkeypatch.setattr(flow_lookup, "read_ledgers", self.read)
        monkeypatch.setattr(quarantine_parking, "ClusterAccess", lambda *_: self)
        monkeypatch.setattr(quarantine_parking, "DeadLetters", lambda *_: self)

    async def read(self, config: Config, _: object) -> dict[str, LedgerView]:
        views: dict[str, LedgerView] = {}
        for flow in config.flows:
            lane = LaneState(KEY, "orders", "orders", 1, 0, "", "sequence", quarantine=self.quarantine)
            known = {KEY.id: lane} if flow.name in self.flows else {}
            views[flow.name] = LedgerView(flow, FlowState(flow=flow.name, lanes=known), None)
        return views

    def admin(self, _: str) -> "Clusters":
        return self

    def upkeep(self, _: str) -> "Clusters":
        return self

    async def describe(self, _: object = None) -> "Clusters":
        return self

    async def close(self) -> None:
        pass

    async def settings(self, topics: list[str]) -> "Settings":
        return Settings({topics[0]: {"cleanup.policy": Setting(self.policy, own=True)}})

    async def returned(self, place: LetterPlace, end: int, since: int) -> list[Returned]:
        assert (place, end, since) == (PLACE, 7, 40)
        return self.back

    async def bring_back(
        self, place: LetterPlace, end: int, to: TopicPartition, origin: Origin, since: int
    ) -> list[Returned]:
        assert (place, end, origin.reason, since) == (PLACE, 7, ORDER.reason, 40)
        there = {each.offset for each in self.back}
        self.back = [*self.back, *(Returned(at, f"{to} offset {100 + at}") for at in self.lying if at not in there)]
        return self.back

    async def park(self, place: LetterPlace, end: int, origin: Origin, behind: int) -> Lying:
        assert (place, origin.by, behind) == (PLACE, "ada@host", -1)
        return Lying(end - place.offset, 40)

    async def found(self) -> FoundEntry:
        found = await find(self.config, ORDER)
        assert found is not None
        return found


class Settings(msgspec.Struct, frozen=True):
    topics: dict[str, dict[str, Setting]]


@pytest.fixture
def clusters(monkeypatch: pytest.MonkeyPatch) -> Clusters:
    return Clusters(monkeypatch)


async def test_what_was_parked_is_brought_back_once(clusters: Clusters) -> None:
    found = await clusters.found()
    would = await bring_back(clusters.config, ORDER, found, None, dry_run=True)
    assert would.done == ("2 of 2 records parked of orders-3 of eu-us would be appended after everything in orders-3",)
    assert clusters.back == []
    first = await bring_back(clusters.config, ORDER, found, None, dry_run=False)
    assert first.done == tuple(
        f"orders-3 of eu-us: source offset {at} is at orders-3 offset {100 + at}" for at in (5, 6)
    )
    again = await bring_back(clusters.config, ORDER, found, "side", dry_run=False)
    assert (again.done, again.notes) == ((), tuple(f"{line} already" for line in first.done))


async def test_it_can_go_elsewhere_and_what_is_gone_is_reported(clusters: Clusters) -> None:
    clusters.policy, clusters.lying = "compact", [6]
    answer = await bring_back(clusters.config, ORDER, await clusters.found(), "side", dry_run=False)
    assert answer.done == ("orders-3 of eu-us: source offset 6 is at side-0 offset 106",)
    assert answer.notes == ("1 of 2 records parked are no longer in mirrord.eu-us.dead",)


async def test_when_nothing_is_brought_back(clusters: Clusters) -> None:
    async def refusal(into: str | None = None, why: str = "it fits now") -> str:
        order = msgspec.structs.replace(ORDER, reason=why)
        with pytest.raises(ConfigError) as raised:
            await bring_back(clusters.config, order, await clusters.found(), into, dry_run=False)
        assert clusters.back == []
        return str(raised.value)

    assert (await refusal(why=" ")).startswith("--why: it is missing")
    assert await refusal("elsewhere") == "us has no topic elsewhere"
    clusters.policy = "compact,delete"
    assert "orders is compacted" in await refusal()
    clusters.policy = "delete"
    clusters.topics["orders"] = Topic("orders", TopicId("another"), 4)
    assert "was re-created" in await refusal()
    clusters.quarantine = (msgspec.structs.replace(LEFT_OUT, letters=-1),)
    assert "they were not parked" in await refusal()


async def test_nothing_is_appended_where_a_flow_copies_back_under_the_same_names(clusters: Clusters) -> None:
    clusters.topics["mirrord.us-eu.ledger"] = Topic("mirrord.us-eu.ledger", TopicId("ledger"), 1)
    found = await clusters.found()
    found = found._replace(flow=msgspec.structs.replace(found.flow, naming="identity"))
    with pytest.raises(ConfigError, match=r"mirrord\.us-eu\.ledger exists on eu.*--into TOPIC"):
        await bring_back(clusters.config, ORDER, found, None, dry_run=False)


async def test_what_waits_is_parked_up_to_where_the_order_reaches(clusters: Clusters) -> None:
    clusters.quarantine = (Parked(5, 6, 10, "refused"),)
    parked = await park(clusters.config, ORDER, "eu-us", 1)
    assert (parked.letters, parked.letters_at) == (1, 40)
    assert (await park(clusters.config, msgspec.structs.replace(ORDER, until=9), "eu-us", 1)).letters == 4
    clusters.quarantine = (LEFT_OUT,)
    with pytest.raises(EnvironmentFault, match="try again"):
        await park(clusters.config, ORDER, "eu-us", 1)


async def test_what_a_policy_would_mask_is_not_parked(clusters: Clusters) -> None:
    clusters.quarantine = (Parked(5, 6, 10, "refused"),)
    flow = clusters.config.flow("eu-us")
    masking = msgspec.structs.replace(flow.records, transform="headers")
    config = msgspec.structs.replace(clusters.config, flows=(msgspec.structs.replace(flow, records=masking),))
    with pytest.raises(EnvironmentFault, match=r"\[flows.records\].*--without-parking"):
        await park(config, ORDER, "eu-us", 1)


async def test_a_name_of_two_flows_is_not_guessed(clusters: Clusters) -> None:
    clusters.flows = tuple(flow.name for flow in clusters.config.flows)
    assert len(clusters.flows) == 2
    with pytest.raises(ConfigError, match="choose with --flow"):
        await find(clusters.config, ORDER)
    found = await find(clusters.config, msgspec.structs.replace(ORDER, name="eu-us:orders-3"))
    assert found is not None
    assert await find(clusters.config, msgspec.structs.replace(ORDER, flow="eu-us", offset=9)) is None
