"""`mirrord ready`: shows what would be lost if the source cluster were gone now."""

import argparse

import msgspec

from mirrord.cli.arguments import Verbs, add_conf, add_some_flows, add_verb, load_conf, some_flows
from mirrord.cli.readiness_tables import readiness
from mirrord.cli.status_watch import console
from mirrord.operations.readiness_report import gather_readiness
from mirrord.recovery.flow_readiness import ReadinessOptions
from mirrord.recovery.rules.judgement import DEFAULT_RPO_S
from mirrord.recovery.rules.options import principal, rpo_seconds
from policies.policy_trial import LOADING

_EPILOG = f"""The answer comes from the target cluster, and from the running daemon if there is one. It needs neither
the source nor the daemon: what they no longer answer is shown as it was last seen, with its age. Nothing is changed.

A flow is ready if each selected partition is copied, the target lacks no records that are older than allowed, all
target topics exist, and it is known for each consumer group which record it reads next. Differences in configs,
ACLs and client quotas, earlier losses and missing proofs are reported, but do not make a flow unready.

--rpo sets the largest acceptable lag. The default is the `rpo` of the flow or, without one, {DEFAULT_RPO_S:g}s.

Exit code 0: ready; 3: not ready; 1: no ledger can be read.

  mirrord ready conf.toml
  mirrord ready conf.toml --flow eu-us --rpo 10s
  mirrord ready mm2.properties --json"""


def register(verbs: Verbs) -> None:
    """Add the parser for `mirrord ready`."""
    parser = add_verb(verbs, "ready", "Show what would be lost if the source cluster were gone now.", _EPILOG)
    add_conf(parser)
    add_some_flows(parser)
    parser.add_argument("--rpo", metavar="DURATION", help="the largest acceptable lag, such as 10s")
    what = "also check whether this principal, such as User:app, may read and write the target topics (repeatable)"
    parser.add_argument("--as", dest="principals", metavar="PRINCIPAL", action="append", default=[], help=what)
    parser.add_argument("--all", action="store_true", help="list all partitions, not only those that need attention")
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def run(arguments: argparse.Namespace) -> int:
    """Print how ready the flows are. Raises ConfigError or EnvironmentFault."""
    rpo_s = None if arguments.rpo is None else rpo_seconds(arguments.rpo, "--rpo")
    asked = ReadinessOptions(rpo_s, tuple(principal(each, "--as") for each in arguments.principals))
    config = some_flows(load_conf(arguments, LOADING), arguments)
    report = gather_readiness(config, asked)
    if arguments.json:
        print(msgspec.json.encode(report).decode())
    else:
        console().print(readiness(report, whole=arguments.all))
    return 0 if report.ready else 3
