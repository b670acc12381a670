"""The commands that grant a flow's permissions, for `mirrord check --acls`.

Each command is one of Kafka's own tool, `kafka-acls.sh` (org.apache.kafka.tools.AclCommand). The operations are exactly
those of `mirrord.operations.rules.required_acls`. Permissions on topics that do not exist yet, or that mirrord cannot
see, cannot be listed by name. For these, each regex of the configuration that has a literal prefix results in a command
that is commented out.
"""

import shlex
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping

from mirrord.config.cross_checks import literal_prefix
from mirrord.config.schema import ClusterConfig, FlowConfig
from mirrord.config.security import Security
from mirrord.model.names import Alias
from mirrord.operations.rules.required_acls import FENCING, KAFKA_CLUSTER, Resource, Right, named_topics
from policies.flow_policies import naming_of

_ADMIN = "admin-{alias}.properties"
"""The file with an administrator's credentials, which the operator has to provide."""
_OF_NEW_COPIES = ("CREATE", "READ", "WRITE", "ALTER", "DESCRIBE_CONFIGS")


def principal_of(security: Security) -> tuple[str, str]:
    """Return the Kafka principal as which mirrord connects, and where it comes from. If the configuration does not
    contain it, return a name in angle brackets that the operator has to replace.

    Kafka derives a principal from the user name of PLAIN and SCRAM, the subject of an OAuth token, or the name in a
    client certificate (`ssl.principal.mapping.rules`).
    """
    if security.mechanism == "OAUTHBEARER" and not security.unsigned:
        return "User:<subject of the OAuth token>", "the OAuth token"
    if security.mechanism is not None:
        return f"User:{security.username}", "the key username"
    if security.certificate is not None or security.keystore is not None:
        return "User:<distinguished name in the client certificate>", "the client certificate"
    return "User:ANONYMOUS", "no authentication"


def acl_commands(
    rights: Iterable[Right], flows: Iterable[FlowConfig], clusters: Mapping[Alias, ClusterConfig]
) -> list[str]:
    """Return the lines of a shell script that grants these permissions to the principals of the configuration."""
    wanted: defaultdict[Alias, set[Right]] = defaultdict(set)
    for right in rights:
        wanted[right.cluster].add(right)
    flows = list(flows)
    lines: list[str] = []
    for alias, cluster in clusters.items():
        later = [line for flow in flows for line in _later(flow, alias, cluster)]
        if not wanted[alias] and not later:
            continue
        principal, origin = principal_of(cluster.security)
        lines += [f"# cluster {alias}: principal {principal} (from {origin})"]
        lines += _commands(wanted[alias], alias, cluster)
        if any(flow.target == alias for flow in flows):
            lines += _fencing(wanted[alias], alias, cluster)
        lines += [*later, ""]
    return lines[:-1]


def _commands(rights: Iterable[Right], alias: Alias, cluster: ClusterConfig) -> Iterator[str]:
    """Yield one command for all resources of one type that need the same operations."""
    operations: defaultdict[tuple[Resource, str], set[str]] = defaultdict(set)
    for right in rights:
        operations[right.resource, right.name].add(right.operation)
    names: defaultdict[tuple[Resource, bool, tuple[str, ...]], list[str]] = defaultdict(list)
    for (resource, name), wanted in sorted(operations.items()):
        is_prefix = name.endswith("*") and name != "*"
        names[resource, is_prefix, tuple(sorted(wanted))].append(name.removesuffix("*") if is_prefix else name)
    for (resource, is_prefix, wanted), resources in names.items():
        yield _command(alias, cluster, wanted, resource, resources, is_prefix=is_prefix)


def _fencing(rights: Collection[Right], alias: Alias, cluster: ClusterConfig) -> Iterator[str]:
    """Yield commands that are commented out, because what they grant is optional and permits much more."""
    there = {right.operation for right in rights if right.resource == "cluster"}
    if not there.intersection(FENCING):
        new, old = (_command(alias, cluster, (each,), "cluster", [KAFKA_CLUSTER], is_prefix=False) for each in FENCING)
        yield "# Optional: to fence off late batches of a suspended process at a failover; it also permits ACL changes"
        yield f"# {new}"
        yield "# The same before Kafka 3.8. It also permits acting as a broker:"
        yield f"# {old}"


def _command(
    alias: Alias,
    cluster: ClusterConfig,
    operations: Iterable[str],
    resource: Resource,
    names: Iterable[str],
    *,
    is_prefix: bool,
) -> str:
    principal, _ = principal_of(cluster.security)
    words = ["kafka-acls.sh", "--bootstrap-server", ",".join(cluster.bootstrap)]
    words += ["--command-config", _ADMIN.format(alias=alias), "--add", "--allow-principal", principal]
    for operation in operations:
        words += ["--operation", operation.replace("_", " ").title().replace(" ", "")]
    for name in names:
        words += ["--cluster"] if name == KAFKA_CLUSTER and resource == "cluster" else [f"--{resource}", name]
    words += ["--resource-pattern-type", "prefixed"] if is_prefix else []
    return shlex.join(words)


def _later(flow: FlowConfig, alias: Alias, cluster: ClusterConfig) -> Iterator[str]:
    """Yield commands that are commented out: they grant what topics need that the flow may select later."""
    literal = named_topics(flow)
    prefixes = sorted({prefix for each in flow.topics if (prefix := literal_prefix(each)) and prefix not in literal})
    if alias == flow.source and prefixes:
        yield f"# To include topics of flow {flow.name} that are created later, or that mirrord cannot see yet:"
        wanted = ("READ", "DESCRIBE_CONFIGS")
        yield f"# {_command(alias, cluster, wanted, 'topic', prefixes, is_prefix=True)}"
    copies = [copied for prefix in prefixes if (copied := naming_of(flow).target_prefix(prefix)) is not None]
    if alias == flow.target and copies:
        yield f"# To include topics of flow {flow.name} that are created later:"
        wanted = (*_OF_NEW_COPIES, *(("ALTER_CONFIGS",) if flow.sync.configs else ()))
        wanted = (*wanted, *(("DELETE",) if flow.propagate_deletes else ()))
        yield f"# {_command(alias, cluster, wanted, 'topic', copies, is_prefix=True)}"
