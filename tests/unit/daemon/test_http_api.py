"""The HTTP API, over real loopback sockets."""

import json
import re
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import parse_qsl

import aiohttp
import msgspec
import pytest
from msgspec.structs import replace

from mirrord.config.changes import ConfigChanges
from mirrord.config.digests import ConfigDigests, digests
from mirrord.config.http import HttpConfig
from mirrord.config.own_file import FileDigest
from mirrord.config.schema import ClusterConfig, Config, FlowConfig
from mirrord.config.security import Secret, Security
from mirrord.config.value_parsers import HostPort
from mirrord.control.address import advertised
from mirrord.daemon import http_api
from mirrord.daemon.cached_answer import TooManyWait
from mirrord.daemon.http_api import HttpServer, RefusedCommand, losses
from mirrord.daemon.prometheus import metrics_text
from mirrord.daemon.readiness import ReadinessQuestion
from mirrord.groups.offset_translation_queries import Answer, Place, Question
from mirrord.ledger.standing_orders import Giver, Order, OrderAnswer
from mirrord.model.errors import ConfigError, EnvironmentFault
from mirrord.model.group_status import GroupsReport
from mirrord.model.names import ClusterId
from mirrord.model.status import (
    ClusterStatus,
    CountsStatus,
    FlowStatus,
    LaneStatus,
    LatencyStatus,
    LeaseStatus,
    LossStatus,
    RequestsStatus,
    Status,
    Totals,
)
from mirrord.runtime.clock import SystemClock
from mirrord.supervision.daemon_http_client import ask_configuration, give_order, order_apply
from mirrord.supervision.upgrade.protocol import HandoverAnswer, HandoverCall
from tests.fixtures.full_status import FULL

LANES = (
    LaneStatus(
        topic="orders",
        partition=0,
        target_topic="eu.orders",
        state="copying",
        lag_records=5,
        lag_s=0.25,
        protected=False,
        copied_records=100,
        copied_bytes=9_000,
        raw_batches=9,
        rebuilt_batches={"compacted": 1},
        verdict_offsets={"control": 3},
    ),
    LaneStatus(topic="orders", partition=1, target_topic="eu.orders", state="halted", note="refused"),
)
FLOW = FlowStatus(
    name="eu-us",
    source=ClusterStatus("eu", ClusterId("a"), True),
    target=ClusterStatus("us", None, False, 5, "refused"),
    state="running",
    lease=LeaseStatus("h", 1, "mirrord", "http://127.0.0.1:1", 3, 1_500),
    totals=Totals.of(LANES),
    lanes=LANES,
    guarantee="at-least-once",
    guarantee_note="not met: a gap is refused",
    latency=LatencyStatus(latency_ms=12.5, latency_error_ms=0.0, note="the clock of us is not known"),
    counts=CountsStatus(
        copied_records=100,
        copied_bytes=9_000,
        raw_batches=9,
        rebuilt_batches={"compacted": 1},
        replicator_deaths=2,
        requests=(
            RequestsStatus(
                api="produce",
                buckets=(1, 2, 0, 0, 0, 0, 0, 1),
                seconds=9.5,
                errors={"REQUEST_TIMED_OUT": 3},
                throttled_s=2.5,
            ),
        ),
    ),
)
STATUS = Status(version="0.1.0", instance="mirrord", at_ms=1, gathered="daemon", flows=(FLOW,))


class Daemon:
    """A fake daemon that only answers."""

    def __init__(self) -> None:
        self.reasons: list[str] = []
        self.stopped = 0
        self.givers: list[Giver] = []
        self.refused: list[tuple[RefusedCommand, Giver]] = []
        self.names: list[str] = []
        self.applied: list[tuple[FileDigest | None, bool]] = []

    def status(self) -> Status:
        return STATUS

    def ready(self) -> tuple[bool, list[str]]:
        return not self.reasons, self.reasons

    async def groups(self, *, reverse: bool = False) -> list[GroupsReport]:
        return [GroupsReport(flow="eu-us", at_ms=7, reverse=reverse, source="log")]

    async def readiness(self, question: ReadinessQuestion) -> bytes:
        if question.flow == "nope":
            raise ConfigError('no flow "nope"')
        if question.flow == "busy":
            raise TooManyWait("try again")
        return msgspec.json.encode({"asked": question})

    def metrics_text(self) -> bytes:
        return metrics_text(STATUS)

    async def translate(self, question: Question) -> Answer:
        if question.flow != "eu-us":
            raise ConfigError("no such flow")
        if question.partition == 9:
            raise EnvironmentFault("the ledger is not read yet")
        here, there = Place("eu", question.topic, 3), Place("us", "eu.orders", 3)
        return Answer(
            flow="eu-us",
            here=here,
            there=there,
            kind="exact",
            asked=question.offset or 0,
            offset=7,
            record=7,
            time_ms=question.time_ms,
            reason=str(question.reverse),
        )

    async def hand_over(self, call: HandoverCall, giver: Giver) -> HandoverAnswer:
        self.givers.append(giver)
        return HandoverAnswer(refused=call.flow)

    async def reload(self, given: FileDigest | None, *, dry_run: bool, giver: Giver) -> ConfigChanges:
        self.givers.append(giver)
        self.applied.append((given, dry_run))
        return ConfigChanges(refused=("clusters.eu: no",))

    def configuration(self) -> ConfigDigests:
        return digests(CONFIG)

    async def order(self, order: Order, *, dry_run: bool, giver: Giver) -> OrderAnswer:
        self.givers.append(giver)
        if order.name == "odrers":
            raise ConfigError('no topic "odrers"; did you mean "orders"?')
        if order.name == "draining":
            raise EnvironmentFault("nothing was changed: this daemon is draining")
        return OrderAnswer(flow="eu-us", done=(f"{order.verb} {order.name} {dry_run}",))

    def command_refused(self, refused: RefusedCommand, giver: Giver) -> None:
        self.refused.append((refused, giver))

    async def ordered_stop(self, by: str, giver: Giver) -> None:
        self.givers.append(giver)
        self.names.append(by)
        await self.stop()

    async def stop(self) -> None:
        self.stopped += 1


@pytest.fixture
def daemon() -> Daemon:
    return Daemon()


@pytest.fixture
async def base(daemon: Daemon) -> AsyncIterator[str]:
    server = HttpServer(daemon, HttpConfig(listen=HostPort("127.0.0.1", free_port())), SystemClock())
    address = await server.start()
    yield f"http://{address}"
    await server.close()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


async def get(url: str) -> tuple[int, str, str]:
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        return answer.status, answer.content_type, await answer.text()


async def test_health(base: str, daemon: Daemon) -> None:
    assert (await get(f"{base}/livez"))[0] == 200
    assert await get(f"{base}/readyz") == (200, "application/json", '{"ready":true,"reasons":[],"losses":{}}')
    # Lost records do not make it unready; it reports them all the same.
    assert losses(FULL) == {"eu-us": {"expired": 5}}
    flow = replace(FULL.flows[0], losses=(LossStatus("gone", 0, "expired", 2), LossStatus("gone", 1, "recreated", 3)))
    assert losses(replace(FULL, flows=(flow,))) == {"eu-us": {"expired": 7, "recreated": 3}}
    daemon.reasons = ["the ledger of eu-us is not read yet"]
    status, _, text = await get(f"{base}/readyz")
    assert (status, json.loads(text)["reasons"]) == (503, daemon.reasons)


async def test_the_status_document(base: str) -> None:
    status, kind, text = await get(f"{base}/status")
    assert (status, kind) == (200, "application/json")
    assert Status.decode(text.encode()) == STATUS


async def test_metrics(base: str) -> None:
    status, kind, text = await get(f"{base}/metrics")
    assert (status, kind) == (200, "text/plain")
    for line in (
        'mirrord_info{instance="mirrord",version="0.1.0"} 1.0',
        'mirrord_lag_records{flow="eu-us",partition="0",topic="orders"} 5.0',
        'mirrord_lag_seconds{flow="eu-us",partition="0",topic="orders"} 0.25',
        'mirrord_copied_records_total{flow="eu-us"} 100.0',
        'mirrord_copied_bytes_total{flow="eu-us"} 9000.0',
        'mirrord_batches_total{flow="eu-us",path="raw",reason=""} 9.0',
        'mirrord_batches_total{flow="eu-us",path="rebuilt",reason="compacted"} 1.0',
        'mirrord_verdict_offsets{flow="eu-us",reason="control"} 3.0',
        'mirrord_lost_offsets{flow="eu-us",reason="expired"} 0.0',
        'mirrord_lane_state{flow="eu-us",partition="1",state="halted",topic="orders"} 1.0',
        'mirrord_lanes{flow="eu-us",state="copying"} 1.0',
        'mirrord_lanes_halted{flow="eu-us"} 1.0',
        'mirrord_lanes_unprotected{flow="eu-us"} 1.0',
        'mirrord_flow_exactly_once{flow="eu-us"} 0.0',
        'mirrord_lease_age_seconds{flow="eu-us"} 1.5',
        'mirrord_cluster_reachable{cluster="us",flow="eu-us",role="target"} 0.0',
        'mirrord_latency_seconds{flow="eu-us"} 0.0125',
        'mirrord_latency_error_seconds{flow="eu-us"} 0.0',
        'mirrord_replicator_deaths_total{flow="eu-us"} 2.0',
        'mirrord_request_seconds_bucket{api="produce",flow="eu-us",le="0.005"} 3.0',
        'mirrord_request_seconds_bucket{api="produce",flow="eu-us",le="+Inf"} 4.0',
        'mirrord_request_seconds_sum{api="produce",flow="eu-us"} 9.5',
        'mirrord_request_seconds_count{api="produce",flow="eu-us"} 4.0',
        'mirrord_request_errors_total{api="produce",error="REQUEST_TIMED_OUT",flow="eu-us"} 3.0',
        'mirrord_throttled_seconds_total{api="produce",flow="eu-us"} 2.5',
    ):
        assert line in text.splitlines()
    assert "mirrord_clock_offset_seconds{" not in text
    assert 'mirrord_lag_records{flow="eu-us",partition="1"' not in text, "what is not known is not zero"


async def test_the_page_needs_nothing_from_outside(base: str) -> None:
    status, kind, text = await get(f"{base}/")
    assert (status, kind) == (200, "text/html")
    assert re.findall(r"""(?:src|href)=["']?(?!data:)[^"'>\s]*[:/]""", text) == []
    assert "innerHTML" not in text


CONFIG = Config(
    clusters={
        "eu": ClusterConfig(("eu:9092",), Security("SASL_SSL", "PLAIN", "me", Secret("env:EU_PASSWORD"))),
        "us": ClusterConfig(("us:9092",), Security()),
    },
    flows=(FlowConfig(name="eu-us", source="eu", target="us", topics=("orders",)),),
    http=HttpConfig(listen=HostPort("127.0.0.1", 1)),
)


@pytest.mark.parametrize("dry_run", [True, False])
async def test_the_digest_of_a_file_arrives_as_it_was_sent(base: str, daemon: Daemon, dry_run: bool) -> None:
    changes = await order_apply(base, CONFIG, FileDigest("ab12"), dry_run=dry_run)
    assert daemon.applied == [(FileDigest("ab12"), dry_run)]
    assert changes.refused == ("clusters.eu: no",)


async def test_a_standby_can_compare_its_configuration(base: str) -> None:
    assert await ask_configuration(base, CONFIG) == digests(CONFIG)


async def test_orders_and_refusals_arrive_as_they_are(base: str) -> None:
    order = Order(verb="pause", name="orders", by="ada@host", reason="it is full")
    answer = await give_order(base, CONFIG, order, dry_run=True)
    assert answer.done == ("pause orders True",)
    with pytest.raises(ConfigError, match='did you mean "orders"'):
        await give_order(base, CONFIG, msgspec.structs.replace(order, name="odrers"), dry_run=False)
    with pytest.raises(EnvironmentFault, match="is draining"):
        await give_order(base, CONFIG, msgspec.structs.replace(order, name="draining"), dry_run=False)


async def test_a_given_address_that_is_taken_is_an_error(daemon: Daemon) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = HostPort("127.0.0.1", taken.getsockname()[1])
        with pytest.raises(EnvironmentFault, match=f"http.listen: cannot listen on {address}: .*in use"):
            await HttpServer(daemon, HttpConfig(listen=address), SystemClock()).start()


def test_every_address_is_none_that_others_could_ask() -> None:
    here, port = socket.gethostname(), 8182
    assert advertised(HostPort("0.0.0.0", port), None) == HostPort(here, port)
    assert advertised(HostPort("::", port), None) == HostPort(here, port)
    assert advertised(HostPort("127.0.0.1", port), None) == HostPort("127.0.0.1", port)
    assert advertised(HostPort("mirror-1", port), None) == HostPort("mirror-1", port)
    assert advertised(HostPort("::", port), HostPort("outside", 443)) == HostPort("outside", 443)


async def test_without_an_address_the_next_free_port_is_taken(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        first = taken.getsockname()[1]
        monkeypatch.setattr(http_api, "DEFAULT_PORT", first)
        server = HttpServer(daemon, HttpConfig(), SystemClock())
        address = await server.start()
        assert first < address.port < first + http_api.PORTS_TRIED
        await server.close()
        monkeypatch.setattr(http_api, "PORTS_TRIED", 1)
        with pytest.raises(EnvironmentFault, match="cannot listen on any of"):
            await HttpServer(daemon, HttpConfig(), SystemClock()).start()


def test_the_page_is_where_the_server_looks() -> None:
    assert Path(http_api.__file__).with_name("page.html").is_file()


@pytest.mark.parametrize(
    ("query", "status", "expected"),
    [
        ("offset=12", 200, {"asked": 12, "offset": 7, "kind": "exact", "reason": "False"}),
        ("time_ms=1700000000000", 200, {"time_ms": 1_700_000_000_000}),
        ("offset=12&reverse", 200, {"reason": "True"}),
        ("offset=12&reverse=false", 200, {"reason": "False"}),
        ("", 400, {"error": "give either offset or time_ms"}),
        ("offset=1&time_ms=2", 400, {"error": "give either offset or time_ms"}),
        ("offset=-1", 400, {}),
        ("offset=99999999999999999999", 400, {}),
        ("offset=x", 400, {}),
        ("offset=1&to=us", 400, {}),
        ("offset=1&flow=us-eu", 404, {"error": "no such flow"}),
        ("offset=1&partition=9", 503, {"error": "the ledger is not read yet"}),
    ],
)
async def test_offsets_are_translated(base: str, query: str, status: int, expected: dict[str, object]) -> None:
    parameters = dict(parse_qsl(f"flow=eu-us&topic=orders&partition=3&{query}", keep_blank_values=True))
    async with aiohttp.ClientSession() as session, session.get(f"{base}/translate", params=parameters) as response:
        assert response.status == status
        answer = await response.json()
    assert expected.items() <= answer.items()
    assert status == 200 or set(answer) == {"error"}


@pytest.mark.parametrize(
    ("query", "status", "body"),
    [
        ("", 200, {"asked": [None, [None, []]]}),
        ("?flow=eu-us&rpo=10s&as=User:a&as=User:b", 200, {"asked": ["eu-us", [10.0, ["User:a", "User:b"]]]}),
        ("?flow=nope", 404, {"error": 'no flow "nope"'}),
        ("?flow=busy", 503, {"error": "try again"}),
        ("?rpo=soon", 400, {"error": 'rpo: found "soon"; allowed: a duration such as "500ms", "5s", "2m" or "1h"'}),
    ],
)
async def test_readiness(base: str, query: str, status: int, body: dict[str, object]) -> None:
    answer = await get(f"{base}/readiness{query}")
    assert (answer[:2], json.loads(answer[2])) == ((status, "application/json"), body)
