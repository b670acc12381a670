"""Loads a configuration file: a conf.toml or, if its name ends in `.properties`, a MirrorMaker 2 properties file.

The values from the file are stored in the structs of `mirrord.config.schema`. Keys that the file does not contain get
their defaults. If the file has no faults, the result is a `Config`. Otherwise, a single ConfigError lists all faults.
This module does not connect to a cluster, read a secret or change a value that the user wrote.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec

from mirrord.config.cross_checks import check_flows
from mirrord.config.http import HttpConfig
from mirrord.config.java_properties import decode
from mirrord.config.jobs import AuditConfig, CompactConfig
from mirrord.config.key_declarations import keys_of, tables_of
from mirrord.config.ledger import LedgerConfig
from mirrord.config.mm2.translate import translate
from mirrord.config.policy_checks import BUILT_IN, PolicyCheck
from mirrord.config.schema import ALIAS, ALIAS_RULE, CLUSTER, ClusterConfig, Config, FlowConfig
from mirrord.config.security import REFERENCE_RULE, Security
from mirrord.config.security_checks import check_security
from mirrord.config.toml_reader import Document, Table
from mirrord.config.value_kinds import ValueKind
from mirrord.config.value_parsers import choice
from mirrord.model.errors import ConfigError
from mirrord.model.names import Alias

S = TypeVar("S", bound=msgspec.Struct)
_Readers = Mapping[type[msgspec.Struct], Callable[[Table], msgspec.Struct]]
_NO_READERS: _Readers = {}
_NO_KINDS: Mapping[ValueKind, ValueKind] = {}


class Loaded(NamedTuple):
    """A configuration, and remarks for the user about its file, one line each."""

    config: Config
    remarks: tuple[str, ...] = ()


def load_file(path: str, policies: PolicyCheck = BUILT_IN) -> Loaded:
    """Load a conf.toml or a `.properties` file. `policies` checks the third-party policies that a conf.toml names.

    Raises ConfigError if the file cannot be read or has faults.
    """
    return load_bytes(read_file(path), path, policies)


def read_file(path: str) -> bytes:
    """Return the contents of a configuration file. Raises ConfigError if the file cannot be read."""
    kind = "a file for MirrorMaker 2, or a conf.toml" if path.endswith(".properties") else "a conf.toml"
    try:
        return Path(path).read_bytes()
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file; name {kind}") from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None


def load_bytes(data: bytes, path: str, policies: PolicyCheck = BUILT_IN) -> Loaded:
    """Load the contents of the configuration file at this path. Relative paths in the contents are resolved.

    Raises ConfigError if the contents have faults.
    """
    if not path.endswith(".properties"):
        return Loaded(_load_toml(data, path, policies))
    translated = translate(decode(data), path)
    # As in Java, relative paths are resolved against the command's working directory.
    return Loaded(translated.config.below(Path.cwd()), tuple(notice.of(path) for notice in translated.notices))


def load(path: str | Path, policies: PolicyCheck = BUILT_IN) -> Config:
    """Load a conf.toml. `policies` checks the third-party policies that the file names.

    Relative paths in the file are resolved against the file's folder. Raises ConfigError if the file cannot be read or
    has faults.
    """
    return _load_toml(read_file(str(path)), str(path), policies)


def _load_toml(data: bytes, path: str, policies: PolicyCheck) -> Config:
    try:
        # As when a text file is opened, each kind of line break counts as one.
        text = data.decode().replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: not UTF-8 text, so not a TOML file") from None
    return load_text(text, path, policies).below(Path(path).absolute().parent)


def load_text(text: str, file_name: str, policies: PolicyCheck = BUILT_IN) -> Config:
    """Load the text of a conf.toml. `file_name` is used only in messages. Relative paths are not resolved.

    Raises a ConfigError that lists all faults.
    """
    document = Document(text, file_name)
    root = document.root
    clusters = {
        alias: _cluster(alias, table)
        for alias, table in root.named_tables("clusters", "a [clusters.ALIAS] table for each cluster").items()
    }
    flows = tuple(_flow(table, tuple(clusters)) for table in root.tables("flows", "at least one [[flows]] table"))
    config = _read_struct(root, Config, readers=_READERS, clusters=clusters, flows=flows)
    flows = tuple(msgspec.structs.replace(flow, archive=config.compact.path) for flow in flows)
    if config.ledger != LedgerConfig():
        clusters = {alias: msgspec.structs.replace(each, ledger=config.ledger) for alias, each in clusters.items()}
    for index, flow in enumerate(flows):
        for key, message in policies.faults(flow) if flow.source and flow.target else ():
            document.fault(f"flows[{index}].{key}", message)
    for index, message in check_flows(flows, policies.tells_origin):
        document.fault(f"flows[{index}]", message)
    document.finish()
    return msgspec.structs.replace(config, clusters=clusters, flows=flows)


def _read_struct(
    table: Table,
    struct: type[S],
    *,
    readers: _Readers = _NO_READERS,
    kinds: Mapping[ValueKind, ValueKind] = _NO_KINDS,
    **given: Any,
) -> S:
    """Return a struct with the values of a table and of the tables within it. Record every fault in the document.

    `readers` contains functions for those inner tables that need additional checks, such as checks across several keys.
    `kinds` replaces some kinds of values. For example, a key that names a cluster then accepts only the clusters in the
    file. `given` contains values for fields that are not read from this table.
    """
    for field, name, key, default in keys_of(struct):
        given[field] = kinds.get(key.kind, key.kind).take(table, name, default)
    for name, inner in tables_of(struct):
        reader = readers.get(inner)
        given[name] = reader(table.table(name)) if reader else _read_struct(table.table(name), inner)
    return struct(**given)


def read_security(table: Table) -> Security:
    """Read a `security` table, which specifies how to authenticate to a cluster. Record a fault for each missing key
    and for each key that has no effect."""
    security = _read_struct(table, Security)
    check_security(table, security)
    return security


def _read_audit(table: Table) -> AuditConfig:
    """Read the `[audit]` table. Record a fault for each key that has no effect at the audit level that the table
    sets."""
    found = _read_struct(table, AuditConfig)
    if found.level == "ledger":
        for key in ("sample", "rate", "spark"):
            if table.has(key):
                table.fault(key, 'has no effect with level = "ledger", which reads no records and needs no Spark')
    return found


def _read_compact(table: Table) -> CompactConfig:
    """Read the `[compact]` table. Record a fault if it schedules compactions (`every`) but contains no `path`."""
    found = _read_struct(table, CompactConfig)
    if found.every_ms is not None and found.path is None:
        table.fault("path", 'missing although every is set; allowed: a folder for the files, such as "/srv/maps"')
    return found


def _read_ledger(table: Table) -> LedgerConfig:
    """Read the `[ledger]` table. Record a fault for each key that has no effect without `key`."""
    found = _read_struct(table, LedgerConfig)
    for name in ("keys", "unsigned"):
        if getattr(found, name) and found.key is None:
            table.fault("key", f"missing although {name} is set; allowed: {REFERENCE_RULE}")
    return found


def _read_http(table: Table) -> HttpConfig:
    """Read the `[http]` table. Record a fault for each key of `[http.tls]` that needs another one."""
    found = _read_struct(table, HttpConfig)
    for key, needed in (("certificate", "key"), ("key", "certificate"), ("client_ca", "certificate")):
        if getattr(found.tls, key) is not None and getattr(found.tls, needed) is None:
            table.fault(f"tls.{needed}", f"missing although {key} is set; allowed: {REFERENCE_RULE}")
    return found


_READERS: _Readers = {
    AuditConfig: _read_audit,
    CompactConfig: _read_compact,
    HttpConfig: _read_http,
    LedgerConfig: _read_ledger,
    Security: read_security,
}


def _cluster(alias: Alias, table: Table) -> ClusterConfig:
    if not ALIAS.fullmatch(alias):
        table.document.fault(table.path, f"the alias is not allowed; allowed: {ALIAS_RULE}")
    return _read_struct(table, ClusterConfig, readers=_READERS)


def _flow(table: Table, aliases: tuple[Alias, ...]) -> FlowConfig:
    kinds = {CLUSTER: ValueKind(choice(*aliases), CLUSTER.allowed)} if aliases else {}
    flow = _read_struct(table, FlowConfig, kinds=kinds)
    if flow.name:
        return flow
    name = flow.default_name if flow.source and flow.target else table.path
    return msgspec.structs.replace(flow, name=name)
