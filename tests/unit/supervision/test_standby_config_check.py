"""A standby reports that its configuration differs from the one the lease holder runs with."""

import asyncio

import pytest

from mirrord.config.digests import ConfigDigests, digests
from mirrord.config.http import HttpConfig
from mirrord.config.schema import ClusterConfig, Config, FlowConfig, LogsConfig, ReplicatorsConfig
from mirrord.config.security import Secret, Security
from mirrord.config.value_parsers import HostPort
from mirrord.control.command_sender import CommandRefused, NoAnswer
from mirrord.supervision import standby_config_check
from mirrord.supervision.standby_config_check import StandbyLook
from tests.fixtures.supervision import eventually

HTTP = "http://127.0.0.1:8182"
FLOW = FlowConfig(name="eu-us", source="eu", target="us", topics=("orders",))
OTHER = FlowConfig(name="other", source="eu", target="asia", topics=("orders",))
SECURITY = Security("SASL_SSL", "PLAIN", "me", Secret("env:ONE"))
CLUSTERS = {alias: ClusterConfig((f"{alias}:9092",), SECURITY) for alias in ("eu", "us", "asia")}
OWN = Config(clusters=CLUSTERS, flows=(FLOW, OTHER), http=HttpConfig(listen=HostPort("127.0.0.1", 1)))


def config(**values: object) -> Config:
    return Config(**{"clusters": CLUSTERS, "flows": (FLOW, OTHER)} | values)  # pyright: ignore[reportArgumentType]


def flow(**values: object) -> tuple[FlowConfig, ...]:
    return (FlowConfig(**{"name": "eu-us", "source": "eu", "target": "us", "topics": ("orders",)} | values), OTHER)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("theirs", "difference"),
    [
        (config(), ""),
        (config(instance="another", logs=LogsConfig("/logs"), http=HttpConfig(listen=HostPort("b", 2))), ""),
        (config(flows=(FLOW,)), ""),
        (config(clusters=CLUSTERS | {"asia": ClusterConfig(("elsewhere:1",), SECURITY)}), ""),
        (config(flows=flow(topics=("a",), rpo_ms=3_000)), "rpo_ms (and 1 more)"),
        (config(flows=flow(start_of={"a": "latest"})), "start_of"),
        (config(flows=(OTHER,), replicators=ReplicatorsConfig(count=2)), "the flow is not in the file of the other"),
        (config(replicators=ReplicatorsConfig(count=2)), "replicators.count"),
        (config(clusters=CLUSTERS | {"eu": ClusterConfig(("elsewhere:1",), SECURITY)}), "clusters.eu"),
        (
            config(
                clusters=CLUSTERS
                | {"us": ClusterConfig(("us:9092",), Security("SASL_SSL", "PLAIN", "me", Secret("env:TWO")))}
            ),
            "clusters.us",
        ),
    ],
)
async def test_the_holder_is_asked_what_differs(
    monkeypatch: pytest.MonkeyPatch, theirs: Config, difference: str
) -> None:
    asked: list[str] = []

    async def ask_configuration(http: str, _: Config) -> ConfigDigests:
        asked.append(http)
        if len(asked) == 1:
            raise NoAnswer("no answer in time")
        return digests(theirs)

    monkeypatch.setattr(standby_config_check, "ask_configuration", ask_configuration)
    monkeypatch.setattr(standby_config_check, "EVERY_S", 0.01)
    monkeypatch.setattr(standby_config_check, "SOON_S", 0.01)
    holders = {"eu-us": HTTP}
    look = StandbyLook(lambda: OWN, lambda: holders)
    running = asyncio.create_task(look.run())
    await eventually(lambda: len(asked) > 2)
    line = f"is a standby with a different configuration from that of {HTTP}: {difference}"
    assert (look.remarks["eu-us"].startswith(line)) if difference else look.remarks == {}
    assert set(asked) == {HTTP}
    holders.clear()
    await eventually(lambda: look.remarks == {})
    running.cancel()


def test_digests_show_no_setting() -> None:
    shown = repr(digests(OWN))
    assert not any(text in shown for text in ("9092", "ONE", "SASL", "orders'"))


async def test_a_holder_that_refuses_is_reported_and_not_pressed(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    async def ask_configuration(http: str, _: Config) -> ConfigDigests:
        asked.append(http)
        raise CommandRefused(f"{http} does not accept this request: no token")

    monkeypatch.setattr(standby_config_check, "ask_configuration", ask_configuration)
    monkeypatch.setattr(standby_config_check, "SOON_S", 0.0)
    look = StandbyLook(lambda: OWN, lambda: {"eu-us": HTTP})
    running = asyncio.create_task(look.run())
    await eventually(lambda: bool(look.remarks))
    await asyncio.sleep(0.05)
    assert asked == [HTTP]
    assert look.remarks["eu-us"].endswith(f"{HTTP} does not accept this request: no token")
    running.cancel()
