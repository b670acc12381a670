"""`mirrord failover`: ends the copying of flows for good, because clients move to the target cluster."""

import argparse
import asyncio
from collections.abc import Sequence

import msgspec

from mirrord.cli.arguments import Verbs, add_conf, add_some_flows, add_verb, load_conf, some_flows
from mirrord.cli.order_verbs import author, checked_reason
from mirrord.cli.printing import print_lines, print_remarks
from mirrord.cli.readiness_tables import readiness
from mirrord.cli.status_watch import console
from mirrord.config.schema import Config
from mirrord.ledger.facts.recovery import RecoveryMode
from mirrord.model.errors import ConfigError, EnvironmentFault, MirrordError
from mirrord.model.failover import FailoverReceipt, FailoverReport
from mirrord.model.version import version
from mirrord.operations.failover_receipt import receipt_lines
from mirrord.operations.failover_run import FailoverRequest, cancel, check_failover, fail_over, is_cancellable
from mirrord.operations.fence_survey import fence_remarks
from mirrord.operations.readiness_report import gather_readiness
from mirrord.recovery.flow_readiness import ReadinessOptions
from mirrord.supervision.rules.failover_plan import STEPS
from policies.policy_trial import LOADING

Ended = tuple[list[FailoverReceipt], list[MirrordError]]
"""The receipts of the flows whose failover has come to an end, and the errors of the others."""

_EPILOG = """--planned: the source works, and nothing may be lost. Stop the producers first. The failover waits until
the target has all records and no group has members on the source. It is cancelled if a producer still writes.

--source-lost: the source is gone. Nothing is copied from then on. The receipt names what is lost of each partition.

Each completed step is recorded in the flow's ledger on the target. From then on, no daemon copies the flow, whether it
was stopped, suspended or started elsewhere with a copy of the file. The running daemon carries out the steps; without
one, the command does. If either is interrupted, repeat the command: it continues where it was.

--cancel ends a failover that has not ended the copying yet. Everything is copied as before.

Exit code 0: complete; 1: a cluster does not answer; 2: the request is impossible, and nothing was changed; 3: the
failover was cancelled, or, with --dry-run, something blocks it.

  mirrord failover conf.toml --planned --dry-run
  mirrord failover conf.toml --source-lost --flow eu-us --reason "fire in eu-1"
  mirrord failover mm2.properties --planned --topics orders,payments"""


def register(verbs: Verbs) -> None:
    """Add the parser for `mirrord failover`."""
    parser = add_verb(verbs, "failover", "End the copying, because clients move to the target cluster.", _EPILOG)
    add_conf(parser)
    add_some_flows(parser)
    how = parser.add_mutually_exclusive_group(required=True)
    how.add_argument("--planned", action="store_true", help="the source works, and nothing may be lost")
    how.add_argument("--source-lost", action="store_true", help="the source is gone")
    how.add_argument("--cancel", action="store_true", help="cancel a failover that has not ended the copying yet")
    parser.add_argument("--topics", metavar="TOPIC[,TOPIC]", help="only these source topics")
    parser.add_argument("--reason", metavar="TEXT", default="", help="the reason, which is recorded and shown")
    parser.add_argument("--dry-run", action="store_true", help="only show the steps, and what would be lost")
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def run(arguments: argparse.Namespace) -> int:
    """Carry out or cancel failovers. Raises ConfigError or EnvironmentFault."""
    reason, topics = checked_reason(arguments.reason), _topics(arguments.topics)
    config = some_flows(load_conf(arguments, LOADING), arguments)
    if topics and len(config.flows) > 1:
        raise ConfigError("--topics: choose one flow with --flow")
    if arguments.cancel:
        if topics or arguments.dry_run or reason:
            raise ConfigError("--cancel: --topics, --dry-run and --reason do not apply to it")
        return _print(arguments, *asyncio.run(_cancel(config)), good="cancelled")
    mode: RecoveryMode = "planned" if arguments.planned else "source-lost"
    asked = FailoverRequest(mode, topics, author(), reason)
    lines = asyncio.run(_check(config, asked))
    if arguments.dry_run:
        return _preview(arguments, config, mode, lines, asyncio.run(fence_remarks(config)))
    return _print(arguments, *asyncio.run(_all(config, asked)), good="complete")


def _topics(given: str | None) -> tuple[str, ...]:
    if given is None:
        return ()
    topics = tuple(dict.fromkeys(given.split(",")))
    if not all(topics):
        raise ConfigError(f'--topics: found "{given}"; allowed: names of source topics, separated by commas')
    return topics


async def _check(config: Config, asked: FailoverRequest) -> list[str]:
    """Check the request for all flows before anything is changed. Raises ConfigError or EnvironmentFault."""
    return list(await asyncio.gather(*(check_failover(config, flow, asked) for flow in config.flows)))


async def _all(config: Config, asked: FailoverRequest) -> Ended:
    def show(line: str) -> None:
        print_remarks([line])

    return _sorted_out(
        await asyncio.gather(*(fail_over(config, flow, asked, show) for flow in config.flows), return_exceptions=True)
    )


async def _cancel(config: Config) -> Ended:
    chosen = [flow for flow in config.flows if await is_cancellable(config, flow)]
    if not chosen:
        raise ConfigError("no failover of these flows is in progress")
    return _sorted_out(await asyncio.gather(*(cancel(config, flow) for flow in chosen), return_exceptions=True))


def _sorted_out(answers: Sequence[FailoverReceipt | BaseException]) -> Ended:
    """Return the receipts, and the errors. One flow does not keep the others from being carried out."""
    receipts = [answer for answer in answers if isinstance(answer, FailoverReceipt)]
    faults = [answer for answer in answers if isinstance(answer, MirrordError)]
    for answer in answers:
        if not isinstance(answer, FailoverReceipt | MirrordError):
            raise answer
    return receipts, faults


def _preview(
    arguments: argparse.Namespace, config: Config, mode: RecoveryMode, lines: list[str], remarks: list[str]
) -> int:
    report = gather_readiness(config, ReadinessOptions())
    blocked = mode == "planned" and not report.ready
    if arguments.json:
        document = {"steps": STEPS[mode], "plan": lines, "remarks": remarks, "ready": report}
        print(msgspec.json.encode(document).decode())
    else:
        print_lines([f"steps: {', '.join(STEPS[mode])}", *(f"{line} (not yet: --dry-run)" for line in lines), *remarks])
        console().print(readiness(report, whole=False))
    return 3 if blocked else 0


def _print(
    arguments: argparse.Namespace, receipts: list[FailoverReceipt], faults: list[MirrordError], *, good: str
) -> int:
    """Print the receipts, and then raise an error if there is one."""
    if arguments.json:
        print(msgspec.json.encode(FailoverReport(version=version(), flows=tuple(receipts))).decode())
    else:
        print_lines([line for receipt in receipts for line in receipt_lines(receipt)])
    if faults:
        raise EnvironmentFault("\n".join(map(str, faults)))
    return 0 if all(receipt.outcome == good for receipt in receipts) else 3
