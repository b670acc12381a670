"""Syncs the ACLs on a flow's target topics with those on the source topics. With `sync.acls = "exact"`, the ACLs on
consumer groups are synced, too.

An ACL is recorded in the ledger before it is created. Otherwise, if mirrord crashed after creating an ACL but before
recording it, mirrord would not know that it had created the ACL and would never remove it.
"""

from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

import msgspec
import structlog

from mirrord.config.schema import FlowConfig
from mirrord.kafka.client.admin_requests import NotOffered
from mirrord.kafka.client.config_and_acl_admin import NoAuthorizer, RequestRefused, UpkeepAdmin
from mirrord.ledger.facts.core import AclsPlanned, AclsSynced
from mirrord.ledger.state import FlowState
from mirrord.ledger.store.fact_recorder import Recorder
from mirrord.model.acls import RESOURCE_KINDS, AclRule, ResourceKind
from mirrord.topics.rules.acls import AclsPlan, plan_acls
from mirrord.topics.rules.recreated_topic_names import CopyNames, copy_names
from policies.acls import AclPolicy, TopicNames, acl_policy
from policies.flow_policies import naming_of

RULES_AT_ONCE = 1_000
LONGEST_PAUSE_MS = 300_000
"""Maximum pause, in milliseconds, before mirrord retries after the target has refused to create or delete ACLs."""

log = structlog.get_logger()


class Rights(NamedTuple):
    """What a flow needs to sync ACLs: connections to both clusters, and the policy that decides which ACLs are
    synced."""

    flow: FlowConfig
    policy: AclPolicy
    names: TopicNames
    source: UpkeepAdmin
    target: UpkeepAdmin


class AclComparison(msgspec.Struct, frozen=True):
    """The difference between the ACLs of the two clusters: the changes to make, or the reason why none can be made."""

    plan: AclsPlan = AclsPlan()
    adopted: frozenset[AclRule] = frozenset()
    """ACLs that exist on the target and that, according to the ledger, mirrord planned to create. The ledger does not
    confirm that they were created, for example because mirrord crashed. They are treated as created by mirrord."""
    source: frozenset[AclRule] | None = None
    """The ACLs of the source, or None if they could not be read."""
    fault: str = ""
    remarks: tuple[str, ...] = ()


def rights_of(
    flow: FlowConfig,
    selects: Callable[[str], bool],
    copies: Mapping[str, str],
    known_names: CopyNames,
    source: UpkeepAdmin,
    target: UpkeepAdmin,
) -> Rights | None:
    """Return what the flow needs to sync ACLs, or None if the flow does not sync ACLs.

    `copies` maps the flow's target topics to their source topics. `known_names` contains the names that the ledger has
    assigned to target topics.
    """
    if flow.sync.acls_mode == "off":
        return None
    known = topic_names(flow, selects, copies, known_names)
    return Rights(flow, acl_policy(flow.sync.acls_mode), known, source, target)


def topic_names(
    flow: FlowConfig, selects: Callable[[str], bool], copies: Mapping[str, str], known_names: CopyNames
) -> TopicNames:
    """Return what an ACL policy needs to know about the flow. The arguments are those of `rights_of`."""
    names = naming_of(flow)
    below = _below(copies.values())
    return TopicNames(selects, below, names.target_topic, names.target_prefix, known_names.beside)


async def compare(rights: Rights, copies: Collection[str], ledger: FlowState) -> AclComparison:
    """Read the ACLs of both clusters and return the difference. Raises EnvironmentFault if a cluster does not
    answer."""
    seen: list[frozenset[AclRule]] = []
    carried = rights.policy.resources
    # Under an earlier policy, mirrord may have added ACLs on other kinds of resources.
    given = {rule.resource for rule in ledger.acls | ledger.planned_acls}
    known: list[ResourceKind] = [kind for kind in RESOURCE_KINDS if kind in carried or kind in given]
    # If the source has no authorizer, the target's ACLs need not be read.
    for side, alias, admin, resources in (
        ("source", rights.flow.source, rights.source, carried),
        ("target", rights.flow.target, rights.target, known),
    ):
        try:
            seen.append(await admin.rules(resources))
        except NoAuthorizer:
            return AclComparison(remarks=(f"the {side} cluster {alias} has no authorizer: no ACLs are synced",))
        except NotOffered as fault:
            return AclComparison(fault=f"ACLs are not synced: {fault}")
        except RequestRefused as fault:
            need = "; DESCRIBE on the cluster is missing" if "AUTHORIZATION" in f"{fault}" else ""
            return AclComparison(fault=f"ACLs are not synced: those of {alias} cannot be read: {fault}{need}")
    source, target = seen
    adopted = ledger.planned_acls & target
    plan = plan_acls(source, target, ledger.acls | adopted, rights.policy, rights.names, copies)
    return AclComparison(plan, adopted, source, remarks=tuple(remarks_of(plan)))


class AclSync:
    """Syncs the ACLs of one flow."""

    def __init__(
        self, flow: FlowConfig, selects: Callable[[str], bool], source: UpkeepAdmin, target: UpkeepAdmin
    ) -> None:
        self._flow = flow
        self._selects = selects
        self._source = source
        self._target = target
        self._pause_ms = 0
        self._wait_ms = 0
        self.seen: frozenset[AclRule] | None = None
        """The ACLs of the source, if the last call to `round` has read them. Otherwise None."""
        self.fault = ""
        self.remarks: tuple[str, ...] = ()
        """Remarks for operators from the latest comparison, one line each. They concern ACLs that cannot be synced, and
        ACLs of other clients that remain on the target."""

    async def round(self, copies: Mapping[str, str], ledger: FlowState, recorder: Recorder) -> None:
        """Compare the ACLs of both clusters once, and create or delete ACLs on the target as needed.

        `copies` maps the flow's target topics to their source topics. Raises EnvironmentFault if a cluster does not
        answer.
        """
        self.seen = None
        if self._flow.sync.acls is None:
            self._warn_once(ledger)
            return
        names = copy_names(ledger, self._flow)
        rights = rights_of(self._flow, self._selects, copies, names, self._source, self._target)
        if rights is None or self._is_early():
            return
        seen = await compare(rights, copies, ledger)
        self.seen = seen.source
        # The plan must fit in one entry of the ledger. The next call makes the remaining changes.
        # After a failover, clients use the target: what the source does not have must not be taken away from them.
        removed = () if any(each.ended for each in ledger.recoveries) else seen.plan.remove[:RULES_AT_ONCE]
        plan = AclsPlan(seen.plan.add[:RULES_AT_ONCE], removed)
        refused: dict[AclRule, str] = {}
        if plan.add or plan.remove or ledger.planned_acls:
            planned = AclsPlanned(tuple(sorted({*plan.add, *seen.adopted})))
            if plan.add and not await recorder.write([planned]):
                return  # an ACL must not be created before the ledger contains it
            refused |= await self._target.add_rules(plan.add) if plan.add else {}
            refused |= await self._target.remove_rules(plan.remove) if plan.remove else {}
            fact = AclsSynced(
                tuple(sorted({*plan.add, *seen.adopted} - refused.keys())),
                tuple(rule for rule in plan.remove if rule not in refused),
            )
            await recorder.write([fact])
            self._log(fact)
        self._pause(bool(refused))
        self._log_lines(_refusal(refused) or seen.fault, seen.remarks)

    def _warn_once(self, ledger: FlowState) -> None:
        """Warn if the flow has added ACLs, and its configuration no longer says what happens to them. They were added
        when ACLs were synced by default."""
        line = unset_mode_remark(ledger)
        if line and not self.remarks:
            log.warning("acls_not_synced", flow=self._flow.name, reason=line)
        self.remarks = (line,) if line else ()

    def _is_early(self) -> bool:
        self._wait_ms -= self._flow.sync.every_ms
        return self._wait_ms >= 0

    def _pause(self, refused: bool) -> None:
        longer = min(max(self._pause_ms * 2, self._flow.sync.every_ms), LONGEST_PAUSE_MS)
        self._pause_ms = self._wait_ms = longer if refused else 0

    def _log_lines(self, fault: str, remarks: tuple[str, ...]) -> None:
        """Log the fault and the remarks when they first appear. Also log when the fault has disappeared."""
        if fault and fault != self.fault:
            log.warning("acls_not_synced", flow=self._flow.name, reason=fault)
        elif self.fault and not fault:
            log.info("acls_in_order", flow=self._flow.name)
        for line in remarks:
            if line not in self.remarks:
                log.info("acls_remark", flow=self._flow.name, remark=line)
        self.fault, self.remarks = fault, remarks

    def _log(self, fact: AclsSynced) -> None:
        if fact.added or fact.removed:
            added, removed = [f"{rule}" for rule in fact.added], [f"{rule}" for rule in fact.removed]
            log.info("acls_synced", flow=self._flow.name, added=added, removed=removed)


def unset_mode_remark(ledger: FlowState) -> str:
    """Return a remark about the ACLs that a flow without `sync.acls` has added, or an empty string."""
    if not ledger.acls:
        return ""
    which = "1 ACL" if len(ledger.acls) == 1 else f"{len(ledger.acls)} ACLs"
    return (
        f"mirrord has added {which} to the target, but sync.acls is not set, so ACLs are neither added nor removed; "
        'set it to "read-only" or "exact" to sync them, or to "off" to leave them as they are'
    )


def _refusal(refused: Mapping[AclRule, str]) -> str:
    if not refused:
        return ""
    rule, reason = next(iter(refused.items()))
    need = "; ALTER on the cluster is missing" if "AUTHORIZATION" in reason else ""
    more = f" (and {len(refused) - 1} more)" if len(refused) > 1 else ""
    return f"ACLs are not synced: the target refuses {rule}{more}: {reason}{need}"


def remarks_of(plan: AclsPlan) -> list[str]:
    """Return remarks for operators about two kinds of ACLs. ACLs of the first kind exist only on the target. mirrord
    keeps them, because it did not create them. ACLs of the second kind exist on the source and cannot be synced."""
    lines: list[str] = []
    if plan.foreign:
        count = len(plan.foreign)
        which = "1 ACL on target topics is" if count == 1 else f"{count} ACLs on target topics are"
        stays = "it stays: " if count == 1 else "they stay, such as "
        lines.append(f"{which} neither mirrord's nor on the source, so {stays}{plan.foreign[0]}")
    if plan.uncopyable:
        rule, reason = plan.uncopyable[0]
        lines.append(f"{len(plan.uncopyable)} ACLs of the source cannot be copied, such as {rule}: {reason}")
    return lines


def _below(topics: Collection[str]) -> Callable[[str], bool]:
    return lambda prefix: any(topic.startswith(prefix) for topic in topics)
