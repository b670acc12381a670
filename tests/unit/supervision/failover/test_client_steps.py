"""Hooks and permissions of a failover."""

import json
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from msgspec.structs import replace

from mirrord.config.recovery import RecoveryConfig
from mirrord.config.schema import FlowConfig
from mirrord.kafka.client.config_and_acl_admin import NoAuthorizer
from mirrord.lab.ports import LOOPBACK, free_ports
from mirrord.ledger.facts.base import Origin
from mirrord.ledger.facts.core import LaneTaken, LeaseTaken
from mirrord.ledger.facts.recovery import Recovery
from mirrord.ledger.fold import fold
from mirrord.ledger.state import FlowState
from mirrord.model.acls import AclRule
from mirrord.model.known_secrets import remember
from mirrord.supervision.failover.client_steps import NOTHING, ClientSteps, HookOutcome
from tests.fixtures.ledger import FLOW, HOLDER, entry, lane_id, opened

PLANNED = Recovery(1, "planned", (), Origin("ada@host", "fire", 1))


class Target:
    """The ACLs of the target."""

    def __init__(self) -> None:
        self.rules: list[AclRule] = []
        self.refuses: dict[AclRule, str] = {}
        self.fault: Exception | None = None

    async def add_rules(self, rules: list[AclRule]) -> dict[AclRule, str]:
        if self.fault is not None:
            raise self.fault
        self.rules += rules
        return self.refuses


def steps(config: RecoveryConfig, target: Target | None = None) -> ClientSteps:
    ledger = FlowState()
    for offset, each in enumerate(
        (entry(FLOW), entry(LeaseTaken(1, HOLDER, 6_000)), entry(opened(0), LaneTaken(lane_id(0), 1, "r-1")))
    ):
        fold(ledger, each, offset)
    flow = replace(FlowConfig(name="eu-us", source="eu", target="us", topics=(".*",)), recovery=config)
    admin: Any = target or Target()
    return ClientSteps(lambda: flow, ("us-1:9092",), admin, lambda: ledger)


def program(folder: Path, text: str) -> str:
    path = folder / "hook"
    path.write_text(f"#!{sys.executable}\n{text}")
    path.chmod(0o755)
    return str(path)


async def before(hook: str, timeout_ms: int = 30_000) -> HookOutcome:
    return await steps(RecoveryConfig(before=(hook,), timeout_ms=timeout_ms)).before(PLANNED)


async def test_a_program_gets_the_plan_and_no_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", "swordfish")
    seen = tmp_path / "seen"
    text = f"import os, sys\nopen({str(seen)!r}, 'w').write(sys.stdin.read())\nassert 'SECRET' not in os.environ"
    assert await before(hook := program(tmp_path, text)) == HookOutcome(failed=False, line=f"{hook}: ok")
    plan = json.loads(seen.read_text())
    assert (plan["phase"], plan["flow"], plan["mode"], plan["number"]) == ("before", "eu-us", "planned", 1)
    assert (plan["names"], plan["bootstrap"]) == ({"orders": "eu.orders"}, ["us-1:9092"])


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("import sys; print('no\\n  route'); sys.exit(7)", "it ended with code 7: no route"),
        ("import sys; sys.exit(1)", "it ended with code 1"),
        ("import time; time.sleep(600)", "it did not end within 0.5 s"),
    ],
)
async def test_a_program_that_fails_is_reported(tmp_path: Path, text: str, why: str) -> None:
    hook = program(tmp_path, text)
    assert await before(hook, 500 if "sleep" in text else 30_000) == HookOutcome(failed=True, line=f"{hook}: {why}")


async def test_a_program_that_does_not_exist(tmp_path: Path) -> None:
    hook = str(tmp_path / "none")
    assert (await before(hook)).line == f"{hook}: it cannot be started: No such file or directory"


async def test_a_program_that_does_not_read_its_input(tmp_path: Path) -> None:
    assert not (await before(program(tmp_path, "import sys; sys.stdin.close()"))).failed


async def test_processes_that_a_program_leaves_behind_do_not_delay_it(tmp_path: Path) -> None:
    text = "import subprocess\nsubprocess.Popen(['sleep', '600'])\nsubprocess.Popen(['setsid', 'sleep', '3'])"
    outcome = await before(program(tmp_path, text))
    assert not outcome.failed
    text = "import subprocess, time\nsubprocess.Popen(['setsid', 'sleep', '3'])\ntime.sleep(600)"
    assert "it did not end within 0.5 s" in (await before(program(tmp_path, text), 500)).line


async def test_a_program_that_never_stops_writing(tmp_path: Path) -> None:
    assert "its output is longer than" in (await before(program(tmp_path, "while True: print('y' * 1000)"))).line


async def test_control_characters_and_secrets_are_not_recorded(tmp_path: Path) -> None:
    remember("swordfish")
    text = "import sys; sys.stdout.buffer.write(b'\\x1b[31m swordfish \\xff'); sys.exit(1)"
    line = (await before(program(tmp_path, text))).line
    assert "swordfish" not in line
    assert "\x1b" not in line
    assert line.encode()


async def served(answer: Callable[[web.Request], Awaitable[web.Response]], timeout_ms: int = 30_000) -> HookOutcome:
    app = web.Application()
    app.router.add_post("/hook", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    (port,) = free_ports(1)
    await web.TCPSite(runner, LOOPBACK, port).start()
    try:
        url = f"http://{LOOPBACK}:{port}/hook"
        outcome = await steps(RecoveryConfig(after=(url,), timeout_ms=timeout_ms)).after(PLANNED)
        return HookOutcome(outcome.failed, outcome.line.removeprefix(f"{url.removesuffix('/hook')}: "))
    finally:
        await runner.cleanup()


async def test_a_request_gets_the_plan() -> None:
    plans: list[Any] = []

    async def answer(request: web.Request) -> web.Response:
        plans.append(await request.json())
        return web.Response(status=204)

    assert await served(answer) == (False, "ok")
    assert (plans[0]["phase"], plans[0]["target"]) == ("after", "us")


async def test_requests_that_fail() -> None:
    async def refuse(_: web.Request) -> web.Response:
        return web.Response(status=403)

    async def redirect(_: web.Request) -> web.Response:
        return web.Response(status=302, headers={"Location": "/elsewhere"})

    assert await served(refuse) == (True, "the answer is 403 Forbidden")
    assert await served(redirect) == (True, "the answer is 302 Found")
    (port,) = free_ports(1)
    assert "it does not answer" in (await before(f"http://{LOOPBACK}:{port}/hook")).line


async def test_all_hooks_run_even_if_one_fails(tmp_path: Path) -> None:
    good, bad = program(tmp_path, ""), str(tmp_path / "none")
    outcome = await steps(RecoveryConfig(before=(bad, good))).before(PLANNED)
    assert outcome.failed
    assert outcome.line.endswith(f"{good}: ok")


async def test_permissions_are_granted_on_the_target_topics() -> None:
    target = Target()
    line = await steps(RecoveryConfig(grant=("User:ada", "User:bob")), target).grant(PLANNED)
    assert line == "User:ada, User:bob may read and write 1 topics"
    assert {(each.name, each.principal, each.operation) for each in target.rules} == {
        ("eu.orders", user, operation)
        for user in ("User:ada", "User:bob")
        for operation in ("READ", "WRITE", "DESCRIBE")
    }


async def test_permissions_that_cannot_be_granted_are_reported() -> None:
    target = Target()
    rule = AclRule("TOPIC", "LITERAL", "eu.orders", "User:ada", "*", "WRITE", "ALLOW")
    target.refuses = {rule: "CLUSTER_AUTHORIZATION_FAILED"}
    line = await steps(RecoveryConfig(grant=("User:ada",)), target).grant(PLANNED)
    assert line.startswith("2 of 3 permissions were granted; refused: ")
    target.fault = NoAuthorizer("no authorizer")
    assert "everybody may" in await steps(RecoveryConfig(grant=("User:ada",)), target).grant(PLANNED)
    assert await steps(RecoveryConfig(), target).grant(PLANNED) == NOTHING
