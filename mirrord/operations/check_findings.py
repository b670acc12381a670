"""`mirrord check`: examines both clusters of each flow, and reports what would prevent or impair a start. The command
changes nothing, except that `--probe` writes to a topic that is deleted afterwards."""

import asyncio
from collections.abc import Awaitable, Iterator, Mapping

import msgspec

from mirrord.config.schema import Config, FlowConfig
from mirrord.control.token_ring import token_faults
from mirrord.ledger.errors import LedgerMissing
from mirrord.ledger.facts.core import FlowOpened
from mirrord.ledger.state import FlowState
from mirrord.ledger.store.cluster_access import ClusterAccess
from mirrord.ledger.store.cluster_ids import check_clusters
from mirrord.model.errors import EnvironmentFault, MirrordError
from mirrord.model.findings import Finding, worst_first
from mirrord.model.names import Alias, probe_topic
from mirrord.operations.acl_findings import rights_findings
from mirrord.operations.advertised_brokers import ClusterSeen, check_brokers
from mirrord.operations.backlog_age import backlog_findings, clock_findings
from mirrord.operations.cluster_survey import FlowSurvey, survey_flows
from mirrord.operations.config_findings import expiry_ms, own_topics_findings, settings_findings
from mirrord.operations.fence_survey import fence_findings
from mirrord.operations.granted_acls import RightSeen
from mirrord.operations.hazard_survey import find_hazards, read_state
from mirrord.operations.ledger_writers_survey import ledger_writer_findings
from mirrord.operations.rules.weak_settings import weak_settings
from mirrord.operations.start_offset_preview import DOES_NOT_BEGIN, Beginning, find_beginnings
from mirrord.supervision.broker_probe import NotProbed, probe_target
from mirrord.supervision.renamed_alias import check_alias
from mirrord.supervision.rules.broker_probe import guarantee


class CheckReport(msgspec.Struct, frozen=True):
    """The result of `mirrord check`."""

    clusters: tuple[ClusterSeen, ...]
    rights: tuple[RightSeen, ...]
    """All permissions that mirrord needs, including those that it lacks."""
    findings: tuple[Finding, ...]
    """The findings in order of severity, the most severe first."""

    @property
    def would_start(self) -> bool:
        """Whether `mirrord start` would do what the configuration says. True if no finding has the severity
        "error"."""
        return not any(finding.severity == "error" for finding in self.findings)


async def check(config: Config, access: ClusterAccess, *, probe: bool) -> CheckReport:
    """Examine every cluster and flow, and return the findings. If a cluster does not answer or a ledger cannot be read,
    the result contains a finding about it.

    With `probe`, also probe each flow's target brokers. The probe writes to the flow's probe topic and then deletes
    this topic.
    """
    timeout_s = config.runtime.request_timeout_ms / 1000
    used = dict.fromkeys(alias for flow in config.flows for alias in (flow.source, flow.target))
    looks = [check_brokers(alias, config.clusters[alias], timeout_s) for alias in used]
    seen = dict(zip(used, await asyncio.gather(*looks), strict=True))
    findings = [finding for cluster in seen.values() for finding in _reachability(cluster)]
    findings += weak_settings(config)
    findings += [
        Finding(severity="error", where="[http]", what=fault, do="put a token there, or remove the setting")
        for fault in token_faults(config.http)
    ]
    reached = tuple(flow for flow in config.flows if not seen[flow.source].error and not seen[flow.target].error)
    rights: list[RightSeen] = []
    if reached:
        surveys = await survey_flows(config.only(reached), access)
        for name, survey in surveys.items():
            if isinstance(survey, FlowSurvey):
                more, found = await _check_flow(config, access, survey, seen, probe=probe)
                rights += more
                findings += found
            else:
                findings.append(Finding(severity="error", flow=name, where="both clusters", what=str(survey)))
    return CheckReport(tuple(seen.values()), tuple(rights), tuple(worst_first(findings)))


def _reachability(cluster: ClusterSeen) -> Iterator[Finding]:
    if cluster.error:
        yield Finding(
            severity="error",
            where=cluster.alias,
            what=cluster.error,
            do="check the addresses, the security settings and the network",
        )
    for broker in cluster.brokers:
        if broker.error:
            yield Finding(
                severity="error",
                where=f"{cluster.alias}: broker {broker.node}",
                what=f"the cluster advertises the address {broker.address}: {broker.error}",
                do="its advertised.listeners must be reachable from this machine",
            )
    releases = sorted({broker.release for broker in cluster.brokers if broker.release})
    if len(releases) > 1:
        what = f"brokers of several versions: {', '.join(releases)}"
        yield Finding(
            severity="note",
            where=cluster.alias,
            what=what,
            do="run `check --probe` again when all have the newer version",
        )


async def _check_flow(
    config: Config, access: ClusterAccess, survey: FlowSurvey, seen: Mapping[Alias, ClusterSeen], *, probe: bool
) -> tuple[list[RightSeen], list[Finding]]:
    flow = survey.flow
    ledger, findings = await _ledger(access, survey)
    rights: list[RightSeen] = []
    timeout_s = config.runtime.request_timeout_ms / 1000

    async def rights_too() -> list[Finding]:
        found, faults = await rights_findings(config, access.admin, survey, ledger, seen)
        rights.extend(found)
        return faults

    parts: dict[str, Awaitable[list[Finding]]] = {
        "hazards": find_hazards(config, survey, access.ledger),
        "rights": rights_too(),
        "settings": settings_findings(config, survey, seen[flow.target]),
        "the ledger's topics": own_topics_findings(config.clusters[flow.target], survey, timeout_s),
        "who may write to the ledger": ledger_writer_findings(
            flow, config.clusters[flow.target], access.upkeep(flow.target)
        ),
        "late batches": fence_findings(config, flow),
        "how old the backlog is": _backlog(config, access, survey, ledger, seen),
        "clocks": clock_findings(config, survey, access.clock.wall_ms()),
        "where partitions begin": _beginnings(config, survey, ledger),
    }
    # The examinations run concurrently, because they spend most of their time waiting for brokers.
    answers = await asyncio.gather(*parts.values(), return_exceptions=True)
    for what, answer in zip(parts, answers, strict=True):
        if isinstance(answer, EnvironmentFault):
            line = f"{what}: not known: {answer}"
            findings.append(Finding(severity="note", flow=flow.name, where="both clusters", what=line))
        elif isinstance(answer, BaseException):
            raise answer
        else:
            findings += answer
    if probe:
        findings.append(await _probe(config, flow, access))
    return rights, findings


async def _ledger(access: ClusterAccess, survey: FlowSurvey) -> tuple[FlowState | None, list[Finding]]:
    """Return the state of the flow's ledger, and findings about the ledger. The state is empty if the flow has never
    run, and None if the ledger cannot be read."""
    flow, preview = survey.flow, survey.preview
    if preview.source.cluster_id == preview.target.cluster_id:
        same = Finding(
            severity="warning",
            flow=flow.name,
            where=f"{flow.source} and {flow.target}",
            what="both are the same cluster",
            do="check that the addresses are the intended ones",
        )
        return None, [same]
    try:
        state = await read_state(flow, access.ledger)
        check_clusters(state, FlowOpened(flow.name, preview.source.cluster_id, preview.target.cluster_id))
        check_alias(flow, state)
    except LedgerMissing:
        return FlowState(), []
    except MirrordError as error:
        fault = Finding(severity="error", flow=flow.name, where=f"{flow.target}: the flow's ledger", what=str(error))
        return None, [fault]
    promise, note = guarantee(state.probed)
    severity = "warning" if promise == "at-least-once" else "note"
    if not note:
        return state, []
    where, what = f"{flow.target}: its brokers", f"{promise}: {note}"
    return state, [Finding(severity=severity, flow=flow.name, where=where, what=what)]


async def _backlog(
    config: Config,
    access: ClusterAccess,
    survey: FlowSurvey,
    ledger: FlowState | None,
    seen: Mapping[Alias, ClusterSeen],
) -> list[Finding]:
    remembered_ms = await expiry_ms(config, seen[survey.flow.target])
    if remembered_ms is None:
        return []
    return await backlog_findings(config, survey, ledger, remembered_ms, access.clock.wall_ms())


async def _beginnings(config: Config, survey: FlowSurvey, ledger: FlowState | None) -> list[Finding]:
    """Return a finding for each topic with partitions that `mirrord start` would not begin to copy until an operator
    makes a decision."""
    if ledger is None:
        return []
    waiting: dict[str, list[Beginning]] = {}
    for each in await find_beginnings(config, survey):
        if each.by in DOES_NOT_BEGIN:
            waiting.setdefault(each.target_topic, []).append(each)
    return [
        Finding(
            severity="error",
            flow=survey.flow.name,
            where=f"{survey.flow.target}: topic {topic}",
            what=f"{len(some)} of its partitions would not begin: partition {some[0].partition}: {some[0].note}",
        )
        for topic, some in sorted(waiting.items())
    ]


async def _probe(config: Config, flow: FlowConfig, access: ClusterAccess) -> Finding:
    where = f"{flow.target}: its brokers"
    try:
        probed = await probe_target(config.clusters[flow.target], probe_topic(flow.name), access.clock, None)
    except NotProbed as fault:
        return Finding(severity="warning", flow=flow.name, where=where, what=f"they could not be probed: {fault}")
    remarks = f" ({'; '.join(probed.remarks)})" if probed.remarks else ""
    if probed.passed:
        what = f"probed: exactly once{remarks}"
        return Finding(severity="note", flow=flow.name, where=where, what=what)
    return Finding(
        severity="warning",
        flow=flow.name,
        where=where,
        what=f"probed: at least once, records may be duplicated: {'; '.join(probed.failures)}{remarks}",
    )
