"""Batches of a suspended daemon arrive after a failover: the target refuses them, and the receipt stays true."""

import asyncio
import json
import os
import signal
import subprocess
from collections.abc import AsyncGenerator, Generator, Sequence
from pathlib import Path
from typing import Any

import pytest

from mirrord.lab.cluster import Cluster
from mirrord.lab.ports import free_ports
from mirrord.lab.server_properties import LabOptions
from tests.fixtures.altered_mirrord import UNFENCED
from tests.fixtures.daemon import SECONDS, Daemon, all_ends, conf, fill, unique
from tests.fixtures.failover import ALTERED, MARKER, command, stays
from tests.fixtures.holding import HeldConnection, HoldingRelay, holding_relay
from tests.fixtures.lab import LabPair
from tests.fixtures.mirror import create_topic, ends, messages, until

COPIED = 50
"""How many records of each partition are copied before the failover."""
LATE = 3_000
"""How many more records the source gets."""
PORTS = free_ports(2)


@pytest.fixture(scope="module")
def relayed() -> Generator[Cluster]:
    """A target with a second listener behind a relay."""
    with Cluster(LabOptions(relayed=(PORTS[0], PORTS[1]))) as cluster:
        yield cluster


@pytest.fixture
async def relay() -> AsyncGenerator[HoldingRelay]:
    async with holding_relay(PORTS[1], PORTS[0]) as relay:
        yield relay


def fail_over(path: Path, *, fenced: bool) -> dict[str, Any]:
    """Run the command, and return the receipt."""
    environment = os.environ | ({} if fenced else {UNFENCED: "1"})
    line = command(path, "--source-lost", "--json", module=ALTERED)
    ended = subprocess.run(line, env=environment, capture_output=True, timeout=2 * SECONDS, check=True)
    (receipt,) = json.loads(ended.stdout)["flows"]
    return receipt


async def let_go(held: Sequence[HeldConnection]) -> None:
    """Deliver what was held back."""
    for connection in held:
        connection.open.set()
    await until(lambda: not any(each.held_bytes for each in held))


@pytest.mark.parametrize("fenced", [True, False])
async def test_batches_of_a_suspended_daemon_arrive_after_the_failover(
    lab_pair: LabPair, relayed: Cluster, relay: HoldingRelay, tmp_path: Path, fenced: bool
) -> None:
    """Its produce requests are on their way when it is suspended. Without the fence, the target would accept them."""
    source, flow = lab_pair.source, unique("late")
    topic, into = create_topic(source, flow, 2), f"eu.{flow}"
    fill(source, topic, 2, 2 * COPIED)
    direct = conf(tmp_path, source, relayed, topic, flow=flow)
    path = direct.with_suffix(".relayed.toml")
    path.write_text(direct.read_text().replace(relayed.bootstrap, f"127.0.0.1:{PORTS[1]}"))
    with Daemon(path) as daemon:
        await asyncio.to_thread(daemon.until_copied, await asyncio.to_thread(all_ends, source, topic))
        held = relay.hold()
        await asyncio.to_thread(fill, source, topic, 2, LATE, 2 * COPIED)
        await until(lambda: sum(each.held_bytes for each in held) > 10_000)
        daemon.process.send_signal(signal.SIGSTOP)
        receipt = await asyncio.to_thread(fail_over, direct, fenced=fenced)
        copied = await asyncio.to_thread(ends, relayed, into)
        await let_go(held)
        if fenced:
            await asyncio.to_thread(stays, lambda: ends(relayed, into) == copied)
        else:
            await until(lambda: ends(relayed, into) != copied)
        daemon.process.send_signal(signal.SIGCONT)
        await asyncio.to_thread(daemon.until, lambda: daemon.flow().state == "ended")
        if fenced:
            await asyncio.to_thread(stays, lambda: ends(relayed, into) == copied)
        assert await asyncio.to_thread(daemon.stop) == 0
    assert receipt["outcome"] == "complete"
    steps = {each["step"]: each["outcome"] for each in receipt["steps"]}
    marker = MARKER if fenced else 0
    expected = "late batches to 2 partitions are refused by the target" if fenced else "nothing was done"
    assert steps["fence"] == expected
    assert [(each["partition"], each["start"], each["target_end"]) for each in receipt["lost"]] == [
        (partition, COPIED, COPIED + marker) for partition in range(2)
    ]
    there = {partition: len(await asyncio.to_thread(messages, relayed, into, partition)) for partition in range(2)}
    if fenced:
        assert there == {0: COPIED, 1: COPIED}
    else:
        assert sum(there.values()) > 2 * COPIED
