"""`make campaign`: everything is killed with -9 again and again while records flow; then both clusters are compared.

Variants: `fresh` records; `old` ones (ten days, and a target broker that forgets producers after seconds); `creating`:
topics that are just being created; `two-daemons` on one flow; `zombies` and `old-zombies`: the copying process is
stopped for a minute and continues after others have taken its partitions (`bench.faults.zombies`); `groups`: consumers
that move to the target and back while the process that follows them is killed (`bench.faults.moving`); `both-ways`: one
topic of two clusters, with writers on both sides (`bench.faults.both_ways`); `audits`: audits of each level during
traffic and kills of the daemon (`bench.faults.auditing`); `storm`: faults of all kinds on clusters of two and three
brokers (`bench.faults.storm`); `sim`: the simulator (`bench.stories`). Results are kept in bench/results and shown in
docs/measurements.md.
"""

import argparse
import random
import tempfile
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from bench.faults import auditing, both_ways, moving, reached, stories, zombies
from bench.faults.ending import CATCH_UP_S, await_end, ends_of
from bench.faults.killing import Faults, Kind, Mirror
from bench.faults.storm import command as storms
from bench.harness.daemon import Daemon, Settings, target_name
from bench.harness.flood import TOPICS, Flood
from bench.harness.pair import LASTING, pair
from bench.report import pages
from mirrord.lab.cluster import Cluster
from mirrord.lab.copy_checker import CopyComparison, TopicPair, compare
from mirrord.lab.server_properties import LabOptions
from mirrord.model.errors import EnvironmentFault
from mirrord.model.status import FlowStatus

Variant = Literal["fresh", "old", "creating", "two-daemons", "zombies", "old-zombies"]

VARIANTS: tuple[Variant, ...] = ("fresh", "old", "creating", "two-daemons", "zombies", "old-zombies")
OTHERS = ("groups", "both-ways", "audits", "storm", "sim")
OLD: tuple[Variant, ...] = ("old", "old-zombies")
ZOMBIES: tuple[Variant, ...] = ("zombies", "old-zombies")
KILLS_PER_ZOMBIE = 4
"""A zombie takes a minute or more."""
FORGETFUL: Mapping[str, str] = {"producer.id.expiration.check.interval.ms": "3000"}
OLD_MS = 10 * 86_400_000
SECONDS_PER_KILL = 4.5
"""Approximate time of a kill and the recovery. The records must flow at a rate that lasts to the end."""
_LOOK_S = 0.2

_SIMULATED = (
    *(f"mirrord/{package}" for package in ("replication", "ledger", "model", "kafka/protocol", "kafka/rules")),
    "tests/sim",
)
"""The code that stories depend on."""

PrintLine = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """One campaign."""

    variant: Variant
    seed: int
    records: int
    """Least number of records that flow."""
    kills: int
    """Number of kills of each kind."""
    kinds: tuple[Kind, ...] = ()
    """Kinds of kills. Empty means all that the variant and the engine have."""
    engine: Literal["ray", "process"] = "ray"
    minutes: float = 60.0
    """Time by which the kills must be done."""
    lease_ttl_s: float = 3.0
    request_timeout_s: float = 3.0

    @property
    def wanted(self) -> dict[Kind, int]:
        """The number of kills of each kind."""
        kills = self.kills
        if self.kinds:
            return dict.fromkeys(self.kinds, kills)
        if self.variant in ZOMBIES:
            each = max(1, kills // KILLS_PER_ZOMBIE)
            return {"zombie": each, "frozen": each} if self.engine == "ray" else {"zombie": each}
        wanted: dict[Kind, int] = {"target": kills, "source": kills}
        if self.variant == "two-daemons":
            # A stopped process is a zombie when it continues: it still believes that it holds the lease.
            wanted |= {"daemon": kills, "stall": kills}
        elif self.engine == "process":
            wanted |= {"daemon": kills}
        else:
            wanted |= {"daemon": kills - kills // 2, "supervisor": kills // 2, "replicator": kills}
        return wanted


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The outcome."""

    plan: Plan
    kills: dict[Kind, int]
    while_copying: dict[Kind, int]
    seconds: float
    """Duration of flowing and killing, without set-up and comparison."""
    comparison: CopyComparison
    flow: FlowStatus = field(repr=False)

    @property
    def passed(self) -> bool:
        """Whether everything that was planned was done, and nothing went wrong."""
        return self.comparison.is_exact and self.kills == self.plan.wanted


def run(plan: Plan, print_line: PrintLine) -> Outcome:
    """Run one campaign, from empty clusters to the comparison. Raises EnvironmentFault."""
    options = LabOptions(properties=LASTING)
    target_options = LabOptions(properties={**LASTING, **FORGETFUL}) if plan.variant in OLD else options
    with tempfile.TemporaryDirectory(prefix="mirrord-campaign-") as name, ExitStack() as everything:
        source, target = everything.enter_context(pair(options, target_options))
        daemons = _daemons(plan, Path(name), source, target)
        for daemon in daemons:
            everything.callback(daemon.kill)
        seconds_per_kill = zombies.PAUSE_S if plan.variant in ZOMBIES else SECONDS_PER_KILL
        rate = plan.records / (seconds_per_kill * sum(plan.wanted.values()))
        age_ms = OLD_MS if plan.variant in OLD else 0
        creating = plan.variant == "creating"
        flood = everything.enter_context(Flood(source.bootstrap, plan.seed, rate, age_ms=age_ms, creating=creating))
        flood.begin()
        began = time.monotonic()
        for daemon in daemons:
            daemon.start()
            if plan.variant in ZOMBIES and daemon is daemons[0]:
                # The other daemon is quicker without Ray, and the first one must be stopped first.
                daemon.wait_for("flow", lambda flow: flow.state == "running", CATCH_UP_S)
        mirror = Mirror(source, target, daemons, lambda: {target_name(at): n for at, n in flood.partitions.items()})
        faults = Faults(mirror, plan.wanted, random.Random(plan.seed), print_line)
        _kill_while_flowing(plan, flood, faults, print_line)
        flow = await_end(daemons, ends_of(source.bootstrap, flood.partitions), print_line)
        seconds = time.monotonic() - began
        for daemon in daemons:
            daemon.stop()
        print_line("comparing record by record")
        pairs = [TopicPair(topic.name, target_name(topic.name)) for topic in flood.topics]
        comparison = compare(source.bootstrap, target.bootstrap, pairs)
        tally = faults.tally
        return Outcome(
            plan=plan,
            kills={kind: tally.kills[kind] for kind in plan.wanted},
            while_copying={kind: tally.while_copying[kind] for kind in plan.wanted},
            seconds=seconds,
            comparison=comparison,
            flow=flow,
        )


def _daemons(plan: Plan, folder: Path, source: Cluster, target: Cluster) -> list[Daemon]:
    names = ("one", "two") if plan.variant in {"two-daemons", *ZOMBIES} else ("one",)
    # A standby does not need a Ray cluster.
    engines: dict[str, Literal["ray", "process"]] = {
        name: "process" if name == "two" or plan.variant == "two-daemons" else plan.engine for name in names
    }
    return [
        Daemon(
            folder,
            Settings(
                source=source.bootstrap,
                target=target.bootstrap,
                topics=TOPICS,
                engine=engines[name],
                instance=name,
                lease_ttl_s=plan.lease_ttl_s,
                request_timeout_s=plan.request_timeout_s,
                replicators="auto" if engines[name] == "process" else 2,
            ),
        )
        for name in names
    ]


def _kill_while_flowing(plan: Plan, flood: Flood, faults: Faults, print_line: PrintLine) -> None:
    """Wait until all kills are done and all records are written."""
    deadline = time.monotonic() + plan.minutes * 60
    with ThreadPoolExecutor(1) as thread:
        killing: Future[None] = thread.submit(faults.run)
        try:
            while not killing.done() or flood.records < plan.records:
                flood.tick()
                if killing.done():
                    killing.result()
                if time.monotonic() > deadline:
                    raise EnvironmentFault(f"not done after {plan.minutes:g} minutes: {dict(faults.tally.kills)}")
                time.sleep(_LOOK_S)
        finally:
            faults.end.set()
        killing.result()
    flood.stop()
    print_line(f"all kills done, {flood.records:,} records written; waiting until all are copied")


def main() -> int:
    """Return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m bench.campaign", description=__doc__)
    parser.add_argument("--variant", choices=(*VARIANTS, *OTHERS), action="append", help="default: all")
    parser.add_argument("--kills", type=int, default=20, help="of each kind (default: %(default)s)")
    parser.add_argument("--records", type=int, default=2_000_000, help="at least (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32), help="default: random")
    parser.add_argument("--minutes", type=float, default=60, help="for the faults of a variant (default: %(default)s)")
    parser.add_argument("--audit-minutes", type=float, default=30, help="of the audits (default: %(default)s)")
    parser.add_argument("--engine", choices=("ray", "process"), default="ray", help="default: %(default)s")
    parser.add_argument("--stories", type=int, default=100_000, help="of the simulator (default: %(default)s)")
    storms.add_arguments(parser)
    parser.add_argument("--try", dest="keep", action="store_false", help="do not keep the results")
    arguments = parser.parse_args()
    began = time.monotonic()

    def print_line(line: str) -> None:
        print(f"{time.monotonic() - began:7.1f} s  {line}", flush=True)

    failed: list[str] = []
    for variant in arguments.variant or (*VARIANTS, *OTHERS):
        print_line(f"--- {variant}, seed {arguments.seed}")
        try:
            if variant == "sim":
                passed = _simulate(arguments, print_line)
            elif variant == "groups":
                passed = _move_groups(arguments, print_line)
            elif variant == "both-ways":
                passed = _copy_both_ways(arguments, print_line)
            elif variant == "audits":
                passed = _audit(arguments, print_line)
            elif variant == "storm":
                passed = _storm(arguments, print_line)
            else:
                passed = _fault_campaign(_plan(variant, arguments), print_line, keep=arguments.keep)
        except EnvironmentFault as fault:
            print_line(f"{variant}: {fault}")
            passed = False
        if not passed:
            failed.append(variant)
    print_line(f"failed: {', '.join(failed)}" if failed else "passed")
    return 1 if failed else 0


def _plan(variant: Variant, arguments: argparse.Namespace) -> Plan:
    return Plan(
        variant=variant,
        seed=arguments.seed,
        records=arguments.records,
        kills=arguments.kills,
        engine=arguments.engine,
        minutes=arguments.minutes,
    )


def _fault_campaign(plan: Plan, print_line: PrintLine, *, keep: bool) -> bool:
    outcome = run(plan, print_line)
    comparison = outcome.comparison
    print_line(f"{plan.variant}: {comparison.records:,} records, {outcome.kills}, {comparison.difference}")
    if not comparison.is_exact:
        print(comparison.describe())
    if keep:
        pages.keep("campaign", _result(outcome))
    return outcome.passed


def _result(outcome: Outcome) -> pages.Result:
    plan, comparison = outcome.plan, outcome.comparison
    return {
        "variant": plan.variant,
        "engine": plan.engine if plan.variant != "two-daemons" else "process",
        "seed": plan.seed,
        "records": comparison.records,
        "payload_bytes": comparison.payload_bytes,
        "partitions": len(comparison.partitions),
        "kills": outcome.kills,
        "while_copying": outcome.while_copying,
        "seconds": round(outcome.seconds, 1),
        "difference": comparison.difference._asdict(),
        "passed": outcome.passed,
    }


def _move_groups(arguments: argparse.Namespace, print_line: PrintLine) -> bool:
    moved = moving.run(arguments.engine, arguments.kills, arguments.seed, print_line)
    print_line(
        f"groups: {moved.records:,} records read and committed, {moved.moves:,} moves, {moved.commits:,} commits seen, "
        f"{dict(moved.kills)}, wrong: {dict(moved.wrong) or 'nothing'}{' - ' if moved.first_wrong else ''}"
        f"{moved.first_wrong}"
    )
    variant = f"groups, {moved.moves:,} moves"
    return _judge(arguments, variant, moving.PARTITIONS, moved, passed=not moved.wrong and moved.moves > 0)


def _copy_both_ways(arguments: argparse.Namespace, print_line: PrintLine) -> bool:
    outcome = both_ways.run(arguments.engine, arguments.kills, arguments.seed, print_line)
    print_line(f"both ways: {outcome.records:,} records, {outcome.kills}, wrong: {outcome.wrong or 'nothing'}")
    passed = not outcome.wrong and outcome.records > 0
    return _judge(arguments, "both-ways", both_ways.PARTITIONS, outcome, passed=passed)


def _storm(arguments: argparse.Namespace, print_line: PrintLine) -> bool:
    wanted = storms.wanted(arguments)
    if storms.is_started():
        return storms.run(wanted, print_line)
    return storms.start(wanted)


def _audit(arguments: argparse.Namespace, print_line: PrintLine) -> bool:
    outcome = auditing.run(arguments.engine, arguments.audit_minutes, arguments.seed, print_line)
    wrong = outcome.wrong or "nothing"
    print_line(f"audits: {outcome.records:,} records, {outcome.audits} audits, {outcome.kills}, wrong: {wrong}")
    variant = f"audits, {outcome.audits:,} of them in {outcome.seconds / 60:.0f} minutes"
    passed = not outcome.wrong and outcome.audits > 0
    return _judge(arguments, variant, outcome.partitions, outcome, passed=passed)


def _judge(
    arguments: argparse.Namespace,
    variant: str,
    partitions: int,
    outcome: moving.Moved | both_ways.Outcome | auditing.Outcome,
    *,
    passed: bool,
) -> bool:
    result: pages.Result = {
        "variant": variant,
        "engine": arguments.engine,
        "seed": arguments.seed,
        "records": outcome.records,
        "payload_bytes": 0,
        "partitions": partitions,
        "kills": dict(outcome.kills),
        "while_copying": dict(outcome.kills),
        "seconds": round(outcome.seconds, 1),
        "difference": dict(outcome.wrong),
        "passed": passed,
    }
    if arguments.keep:
        pages.keep("campaign", result)
    return passed


def _simulate(arguments: argparse.Namespace, print_line: PrintLine) -> bool:
    outcome = stories.run(arguments.seed, arguments.stories, print_line)
    found = reached.count(arguments.seed, min(arguments.stories, reached.STORIES), print_line)
    unlisted = found.unlisted()
    for statement in unlisted:
        print_line(f"never reached: {statement}")
    passed = not outcome.failed and not unlisted
    result: pages.Result = {
        "code": pages.code_of(*_SIMULATED),
        "seed": outcome.seed,
        "stories": outcome.stories,
        "steps": outcome.steps,
        "processes": outcome.processes,
        "seconds": round(outcome.seconds, 1),
        "violations": len(outcome.failed),
        "failed_stories": [str(each.story) for each in outcome.failed[:20]],
        "statements": len(found.counts),
        "never_reached": len(found.unreached),
        "passed": passed,
    }
    if arguments.keep:
        pages.keep("simulator", result)
    return passed
