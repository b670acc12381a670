"""Read conf.toml into the structs of `mirrord.config.schema`, with every default filled in.

`load` reads a file. It either returns a consistent `Config` or raises one ConfigError that lists all faults of the
file. The module does not connect to a cluster, read a secret or change a value that the user wrote.
"""

from pathlib import Path

import msgspec

from mirrord.config.cross_checks import check_flows
from mirrord.config.jobs import AuditConfig, CompactConfig, read_audit, read_compact
from mirrord.config.keys import ValueKind
from mirrord.config.policy_checks import BUILT_IN, PolicyCheck
from mirrord.config.schema import ALIAS, ALIAS_RULE, CLUSTER, ClusterConfig, Config, FlowConfig
from mirrord.config.security import Security
from mirrord.config.security_table import read_security
from mirrord.config.struct_reader import Readers, read_struct
from mirrord.config.toml_reader import Document, Table
from mirrord.config.value_parsers import choice
from mirrord.model.errors import ConfigError
from mirrord.model.names import Alias

_READERS: Readers = {AuditConfig: read_audit, CompactConfig: read_compact, Security: read_security}


def load(path: str | Path, policies: PolicyCheck = BUILT_IN) -> Config:
    """Read a file.

    Relative paths in it are resolved against its folder. `policies` judges policies that are not built in.

    Raises ConfigError if the file cannot be read or has any fault.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file; name a conf.toml") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: not a UTF-8 text, so not a TOML file") from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    return load_text(text, str(path), policies).below(Path(path).absolute().parent)


def load_text(text: str, file_name: str, policies: PolicyCheck = BUILT_IN) -> Config:
    """Read the text of a configuration. `file_name` is used only in messages, and paths stay as they are written.

    Raises ConfigError with all faults.
    """
    document = Document(text, file_name)
    root = document.root
    clusters = {
        alias: _cluster(alias, table)
        for alias, table in root.named_tables("clusters", "a [clusters.ALIAS] table for each cluster").items()
    }
    flows = tuple(_flow(table, tuple(clusters)) for table in root.tables("flows", "at least one [[flows]] table"))
    config = read_struct(root, Config, readers=_READERS, clusters=clusters, flows=flows)
    flows = tuple(msgspec.structs.replace(flow, archive=config.compact.path) for flow in flows)
    for index, flow in enumerate(flows):
        for key, message in policies.faults(flow) if flow.source and flow.target else ():
            document.fault(f"flows[{index}].{key}", message)
    for index, message in check_flows(flows, policies.tells_origin):
        document.fault(f"flows[{index}]", message)
    document.finish()
    return msgspec.structs.replace(config, flows=flows)


def _cluster(alias: Alias, table: Table) -> ClusterConfig:
    if not ALIAS.fullmatch(alias):
        table.document.fault(table.path, f"the alias is not allowed; allowed: {ALIAS_RULE}")
    return read_struct(table, ClusterConfig, readers=_READERS)


def _flow(table: Table, aliases: tuple[Alias, ...]) -> FlowConfig:
    kinds = {CLUSTER: ValueKind(choice(*aliases), CLUSTER.allowed)} if aliases else {}
    flow = read_struct(table, FlowConfig, kinds=kinds)
    if flow.name:
        return flow
    name = flow.default_name if flow.source and flow.target else table.path
    return msgspec.structs.replace(flow, name=name)
