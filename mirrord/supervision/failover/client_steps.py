"""The steps of a failover that the configuration adds for clients: hooks, and permissions on the target
(`[flows.recovery]`)."""

import asyncio
import os
import signal
import subprocess
from collections.abc import Callable, Sequence
from contextlib import suppress
from tempfile import TemporaryFile
from typing import NamedTuple

import msgspec
import structlog

from mirrord.config.recovery import is_url, shown_hook
from mirrord.config.schema import FlowConfig
from mirrord.kafka.client.admin_requests import NotOffered
from mirrord.kafka.client.config_and_acl_admin import NoAuthorizer, RequestRefused, UpkeepAdmin
from mirrord.ledger.facts.recovery import Recovery
from mirrord.ledger.state import FlowState
from mirrord.model.acls import WILDCARD, AclRule
from mirrord.model.known_secrets import mask
from mirrord.model.shown_text import printable
from mirrord.runtime.process_hardening import bare_environment
from mirrord.supervision.failover.receipt import receipt_of

OUTPUT_BYTES = 500
"""How much of the end of a program's output is kept as the reason for its failure."""
MOST_OUTPUT_BYTES = 1 << 20
"""A program with a longer output is killed."""
LONGEST_LINE = 1_000
POLL_S = 0.05
NOTHING = "nothing is configured"
_ACCESS = ("READ", "WRITE", "DESCRIBE")

log = structlog.get_logger()


class HookOutcome(NamedTuple):
    """How the hooks of one step have ended."""

    failed: bool
    """Whether at least one of them has failed."""
    line: str
    """One line for operators."""


class ClientSteps:
    """Runs hooks, and grants permissions. After a crash, a step may be carried out twice."""

    def __init__(
        self,
        flow: Callable[[], FlowConfig],
        bootstrap: Sequence[str],
        target: UpkeepAdmin,
        ledger: Callable[[], FlowState],
    ) -> None:
        """`flow` returns the current configuration, `bootstrap` are the bootstrap servers of the target."""
        self._flow = flow
        self._bootstrap = bootstrap
        self._target = target
        self._ledger = ledger

    async def close(self) -> None:
        """Close the connection to the target."""
        await self._target.close()

    async def before(self, recovery: Recovery) -> HookOutcome:
        """Run the hooks that come before the end of the copying."""
        return await self._run("before", self._flow().recovery.before, recovery)

    async def after(self, recovery: Recovery) -> HookOutcome:
        """Run the hooks that come after the positions of consumer groups."""
        return await self._run("after", self._flow().recovery.after, recovery)

    async def grant(self, recovery: Recovery) -> str:
        """Allow the configured principals to read and write the target topics. Return what was done. Raises
        EnvironmentFault if the target does not answer."""
        principals = self._flow().recovery.grant
        if not principals:
            return NOTHING
        receipt = receipt_of(self._flow(), self._bootstrap, self._ledger(), recovery)
        rules = [
            AclRule("TOPIC", "LITERAL", topic, principal, WILDCARD, operation, "ALLOW")
            for topic in sorted(set(receipt.names.values()))
            for principal in principals
            for operation in _ACCESS
        ]
        try:
            refused = await self._target.add_rules(rules)
        except NoAuthorizer:
            return "the target has no authorizer, so everybody may read and write"
        except (NotOffered, RequestRefused) as fault:
            return f"the permissions could not be granted: {fault}"
        if refused:
            rule, why = min(refused.items())
            more = f" (and {len(refused) - 1} more)" if len(refused) > 1 else ""
            return f"{len(rules) - len(refused)} of {len(rules)} permissions were granted; refused: {rule}: {why}{more}"
        return f"{', '.join(principals)} may read and write {len(receipt.names)} topics"

    async def _run(self, phase: str, hooks: Sequence[str], recovery: Recovery) -> HookOutcome:
        if not hooks:
            return HookOutcome(failed=False, line=NOTHING)
        receipt = receipt_of(self._flow(), self._bootstrap, self._ledger(), recovery)
        document = msgspec.json.encode({"phase": phase, **msgspec.to_builtins(receipt)})
        timeout_s, lines, failed = self._flow().recovery.timeout_ms / 1000, list[str](), False
        for hook in hooks:
            why = await (_post(hook, document, timeout_s) if is_url(hook) else _execute(hook, document, timeout_s))
            why, name = _clean(why), shown_hook(hook)
            log.info("failover_hook", flow=self._flow().name, phase=phase, hook=name, failure=why or None)
            lines.append(f"{name}: {why or 'ok'}")
            failed = failed or bool(why)
        return HookOutcome(failed, "; ".join(lines))


def _clean(line: str) -> str:
    """Return a line that can be recorded and shown: without known secrets and control characters."""
    return printable(mask(line.encode(errors="replace").decode()), LONGEST_LINE)


async def _execute(program: str, document: bytes, timeout_s: float) -> str:
    """Run a program with the document on its standard input. Return why it failed, or an empty string.

    Input and output are files, and the exit of the program itself is awaited: processes that it leaves in the
    background cannot delay the failover. Those in its process group are killed.
    """
    loop = asyncio.get_running_loop()
    until = loop.time() + timeout_s
    with TemporaryFile() as given, TemporaryFile() as output:
        given.write(document)
        given.seek(0)
        try:
            process = subprocess.Popen(  # noqa: ASYNC220 - asyncio would wait for the end of its output
                [program],
                stdin=given,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=bare_environment(),
                start_new_session=True,
            )
        except OSError as error:
            return f"it cannot be started: {error.strerror}"
        try:
            while (code := process.poll()) is None and loop.time() < until:
                if os.fstat(output.fileno()).st_size > MOST_OUTPUT_BYTES:
                    return f"its output is longer than {MOST_OUTPUT_BYTES} bytes"
                await asyncio.sleep(POLL_S)
            if code is None:
                return f"it did not end within {timeout_s:g} s"
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        if code == 0:
            return ""
        output.seek(max(0, os.fstat(output.fileno()).st_size - OUTPUT_BYTES))
        said = " ".join(output.read(OUTPUT_BYTES).decode(errors="replace").split())
        return f"it ended with code {code}{f': {said}' if said else ''}"


async def _post(url: str, document: bytes, timeout_s: float) -> str:
    """Send the document with a POST request. Return why it failed, or an empty string. Redirects are not followed."""
    import aiohttp  # noqa: PLC0415 - it would be a third of all code that a process loads, and few processes need it

    try:
        async with (
            asyncio.timeout(timeout_s),
            aiohttp.ClientSession() as session,
            session.post(
                url, data=document, headers={"Content-Type": "application/json"}, allow_redirects=False
            ) as answer,
        ):
            return "" if 200 <= answer.status < 300 else f"the answer is {answer.status} {answer.reason or ''}".rstrip()
    except TimeoutError:
        return f"no answer within {timeout_s:g} s"
    except (aiohttp.ClientError, OSError) as error:
        return f"it does not answer: {error}"
