"""Asks the target who may write to the topics of a flow's ledger."""

from mirrord.config.schema import ClusterConfig, FlowConfig
from mirrord.kafka.client.config_and_acl_admin import NoAuthorizer, RequestRefused, UpkeepAdmin
from mirrord.model.findings import Finding
from mirrord.model.names import ledger_topic, state_topic
from mirrord.operations.rules.ledger_writers import own_principal, writer_findings, writers


async def ledger_writer_findings(flow: FlowConfig, target: ClusterConfig, admin: UpkeepAdmin) -> list[Finding]:
    """Return a finding if principals other than mirrord's may write to the flow's ledger, or if this is unknown. Raises
    EnvironmentFault if the target does not answer."""
    where = f"{flow.target}: topics mirrord.{flow.name}.*"
    keys = target.ledger
    signed = keys is not None and keys.key is not None and flow.name not in keys.unsigned
    try:
        rules = await admin.rules(["TOPIC"])
    except NoAuthorizer:
        what = "the cluster has no authorizer, so every client that reaches it can write to the ledger"
        what += ", which is signed" if signed else ", which is not signed"
        severity = "note" if signed else "warning"
        do = "" if signed else "configure an authorizer, or set `key` in [ledger]"
        return [Finding(severity=severity, flow=flow.name, where=where, what=what, do=do)]
    except RequestRefused as refused:
        what = f"who may write to the ledger cannot be determined: the ACLs cannot be listed ({refused})"
        do = "allow DESCRIBE on the cluster, or check with kafka-acls.sh that only mirrord may write to mirrord.*"
        return [Finding(severity="note", flow=flow.name, where=where, what=what, do=do)]
    finally:
        await admin.close()
    found = writers(rules, (ledger_topic(flow.name), state_topic(flow.name)))
    return writer_findings(flow.name, where, found, own_principal(target.security), signed=signed)
