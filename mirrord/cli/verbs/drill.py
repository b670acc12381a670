"""`mirrord drill`: rehearses a failover without touching anything that clients use."""

import argparse
from contextlib import ExitStack

import msgspec

from mirrord.cli.arguments import Verbs, add_conf, add_some_flows, add_verb, load_conf, some_flows
from mirrord.cli.printing import print_lines, print_remarks
from mirrord.cli.progress import ProgressLine
from mirrord.config.recovery import principal
from mirrord.config.schema import Config, FlowConfig
from mirrord.ledger.store.job_lease import JobLease, JobNotRecorded
from mirrord.model.drill import DrillReceipt
from mirrord.model.errors import ConfigError, EnvironmentFault, MirrordError
from mirrord.model.version import version
from mirrord.operations.drill_run import NothingToRehearse, check_drill, drill, outcome_of, receipt_lines
from mirrord.recovery.drill.flow_drill import DrillOptions
from mirrord.runtime.priority import lower_priority
from policies.policy_trial import LOADING

_EPILOG = """For each position of a consumer group, the drill reads the next record on the source and on the target, and
compares key, value, headers and timestamp. It checks what mirrord ready checks, and whether the hooks of
[flows.recovery] could run. It also creates the topic mirrord.FLOW.drill on the target, writes, reads and commits there,
and deletes it again. Each stage is timed. No group, topic or offset remains, and nothing that clients use is
changed.

The result is recorded in the flow's ledger. [drill] every = "1d" lets the daemon run drills by schedule.

Exit code 3: there is a finding, or, with --dry-run, another drill is running.

  mirrord drill conf.toml --dry-run
  mirrord drill conf.toml --flow eu-us --sample 0.1 --as User:app"""


def register(verbs: Verbs) -> None:
    """Add the parser for `mirrord drill`."""
    parser = add_verb(verbs, "drill", "Rehearse a failover, and compare what groups would read.", _EPILOG)
    add_conf(parser)
    add_some_flows(parser)
    share = "only this share of the consumer groups, chosen at random; default: `sample` of [drill]"
    parser.add_argument("--sample", metavar="SHARE", type=float, help=share)
    what = "also check whether this principal, such as User:app, may read and write the target topics (repeatable)"
    parser.add_argument("--as", dest="principals", metavar="PRINCIPAL", action="append", default=[], help=what)
    parser.add_argument("--no-canary", action="store_true", help="create no topic and no group on the target")
    parser.add_argument(
        "--dry-run", action="store_true", help="only show the stages, and whether a drill could run now"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def run(arguments: argparse.Namespace) -> int:
    """Run drills and print their receipts. Raises ConfigError or EnvironmentFault."""
    lower_priority()
    config = some_flows(load_conf(arguments, LOADING), arguments)
    options = _options(arguments, config)
    config, busy = _rehearsable(config)
    if arguments.dry_run:
        return _preview(arguments, config, options, busy)
    receipts, faults = list[DrillReceipt](), list[MirrordError]()
    with ExitStack() as stack:
        lease = _lease(config, stack)
        for flow in config.flows:
            try:
                receipts.append(_one(config, flow, options, lease))
            except MirrordError as fault:
                faults.append(fault)
    if arguments.json:
        print(msgspec.json.encode({"version": version(), "flows": receipts}).decode())
    else:
        print_lines([line for receipt in receipts for line in receipt_lines(receipt)])
    if faults:
        raise EnvironmentFault("\n".join(map(str, faults)))
    return 0 if all(receipt.is_good for receipt in receipts) else 3


def _rehearsable(config: Config) -> tuple[Config, list[str]]:
    """Return the configuration with the flows that can be rehearsed, and one line for each that is being rehearsed.
    Raises NothingToRehearse if there is none."""
    flows, busy, faults = list[FlowConfig](), list[str](), list[NothingToRehearse]()
    for flow in config.flows:
        try:
            line = check_drill(config, flow)
        except NothingToRehearse as fault:
            faults.append(fault)
            continue
        flows.append(flow)
        busy += [line] if line else []
    if not flows:
        raise NothingToRehearse("\n".join(map(str, faults)))
    print_remarks([str(fault) for fault in faults])
    return config.only(flows), busy


def _one(config: Config, flow: FlowConfig, options: DrillOptions, lease: JobLease | None) -> DrillReceipt:
    """Run the drill of one flow, and let the lease record the outcome. Raises what the drill raises."""
    with ProgressLine(f"drill of {flow.name}") as shown:
        try:
            receipt = drill(config, flow, options, lambda done, every: _show(shown, lease, done, every))
        except MirrordError as fault:
            if lease is not None:
                lease.set_outcome(flow.name, "failed", str(fault).splitlines()[0])
            raise
    if lease is not None:
        lease.set_outcome(flow.name, *outcome_of(receipt), receipt)
    return receipt


def _options(arguments: argparse.Namespace, config: Config) -> DrillOptions:
    sample = config.drill.sample if arguments.sample is None else arguments.sample
    if not 0 < sample <= 1:
        raise ConfigError(f"--sample: found {sample:g}; allowed: a share above 0 and up to 1, such as 0.1")
    for each in arguments.principals:
        try:
            principal(each)
        except ValueError as rule:
            raise ConfigError(f'--as: found "{each}"; allowed: {rule}') from None
    principals = tuple(dict.fromkeys((*config.drill.principals, *arguments.principals)))
    return DrillOptions(sample, principals, config.drill.canary and not arguments.no_canary)


def _preview(arguments: argparse.Namespace, config: Config, options: DrillOptions, busy: list[str]) -> int:
    stages = ["ready", "hooks", "groups", *(["canary"] if options.canary else [])]
    if arguments.json:
        print(msgspec.json.encode({"stages": stages, "blockers": busy}).decode())
    else:
        flows = ", ".join(flow.name for flow in config.flows)
        print_lines([f"stages: {', '.join(stages)} (not yet: --dry-run)", f"flows: {flows}", *busy])
    return 3 if busy else 0


def _lease(config: Config, stack: ExitStack) -> JobLease | None:
    """Acquire the lease that keeps other drills from running. Return None if the ledger cannot be written to; the
    drill then runs without a lease. Raises EnvironmentFault."""
    try:
        return stack.enter_context(JobLease(config, "drill"))
    except JobNotRecorded as fault:
        print_remarks([f"the drill will not be recorded: {fault}"])
        return None


def _show(line: ProgressLine, lease: JobLease | None, done: int, every: int) -> None:
    line.show(done, every, "positions", "")
    if lease is not None:
        lease.progress(done, every)
