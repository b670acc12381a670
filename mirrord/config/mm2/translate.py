"""Translates the text of an mm2.properties file into a `Config` and notices. This module is the entry point of the
package."""

from collections.abc import Sequence
from typing import NamedTuple

from mirrord.config.cross_checks import check_flows
from mirrord.config.fault_text import closest_name
from mirrord.config.java_properties import split_list
from mirrord.config.mm2.flows import FlowReader
from mirrord.config.mm2.notices import Notice, notices
from mirrord.config.mm2.properties_file import PropertiesFile
from mirrord.config.mm2.security import ClusterReader
from mirrord.config.schema import ALIAS, ALIAS_RULE, Config, FlowConfig
from mirrord.model.names import Alias


class TranslatedConfig(NamedTuple):
    """The configuration that is equivalent to an mm2.properties file, and the notices about the file."""

    config: Config
    notices: tuple[Notice, ...]


def translate(text: str, file_name: str) -> TranslatedConfig:
    """Return the equivalent configuration with the enabled flows and their clusters.

    Raises a ConfigError that lists all faults, such as invalid values, Java classes without an equivalent in mirrord,
    and expressions that cannot be resolved.
    """
    source = PropertiesFile(text, file_name)
    aliases = _aliases(source)
    pairs = [(start, end) for start in aliases for end in aliases if start != end]
    readers = {pair: FlowReader(source, *pair) for pair in pairs}
    enabled = [pair for pair in pairs if readers[pair].enabled]
    if aliases and not enabled:
        example = "->".join((*aliases, "ALIAS")[:2])
        source.fault("clusters", f"no flow between them is enabled; allowed: {example}.enabled = true")
    flows: list[FlowConfig] = []
    for start, end in enabled:
        back = None if (end, start) in enabled else readers[end, start]
        flows.append(readers[start, end].read(_name(start, end, flows), reverse=back))
    used = [alias for alias in aliases if any(alias in pair for pair in enabled)]
    clusters = {alias: ClusterReader(source, alias).read() for alias in used}
    source.finish()
    remarks = notices(source, aliases, enabled)
    # MirrorMaker 2 allows a flow without topics. Such a flow copies nothing.
    remarks += tuple(_empty(flow, source) for flow in flows if not flow.topics)
    flows = [flow for flow in flows if flow.topics]
    if not flows:
        source.fault("topics", "every flow that is enabled has an empty list; allowed: at least one topic or regex")
    for index, message in check_flows(flows):
        source.fault(f"{flows[index].source}->{flows[index].target}", message)
    source.finish()
    return TranslatedConfig(Config(clusters=clusters, flows=tuple(flows)), remarks)


def _aliases(source: PropertiesFile) -> tuple[Alias, ...]:
    found = source.find("clusters")
    aliases = tuple(dict.fromkeys(split_list(found.text))) if found else ()
    if len(aliases) < 2:
        like = None if found else closest_name("clusters", source.entries)
        hint = f'; did you mean it by "{like}"?' if like else ""
        source.fault("clusters", f"{'at least two' if found else 'missing'}; allowed: a list such as eu, us{hint}")
    for alias in aliases:
        if not ALIAS.fullmatch(alias):
            source.fault("clusters", f'the alias "{alias}" is not allowed; allowed: {ALIAS_RULE}')
    return aliases


def _name(start: Alias, end: Alias, flows: Sequence[FlowConfig]) -> str:
    """Return a flow name such as `eu-us`.

    Aliases may contain dashes, so two flows could get the same name. The later flow then gets more dashes between its
    aliases, as in `eu--us`.
    """
    dashes = "-"
    while any(flow.name == f"{start}{dashes}{end}" for flow in flows):
        dashes += "-"
    return f"{start}{dashes}{end}"


def _empty(flow: FlowConfig, source: PropertiesFile) -> Notice:
    key = next(key for key in (f"{flow.source}->{flow.target}.topics", "topics") if key in source.entries)
    return Notice("remark", key, (source.entries[key].line,), "empty, so the flow copies nothing and is omitted")
