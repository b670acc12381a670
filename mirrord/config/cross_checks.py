"""Checks that flows are consistent with each other.

No two flows may have the same name or, with one exception, write to the same topic. A ring is a chain of flows that
leads back to the cluster at which it begins. No ring may copy its own output.

If two clusters copy topics to each other under the same names, a flow between these clusters does not copy records that
other flows have written to its source. `mirrord.replication.lane.source.loop_detection` recognizes these records. Flows
from two such clusters are therefore allowed to write to the same topic. Flows are also allowed to form a ring if every
cluster in the ring exchanges topics in this way with all other clusters in the ring.

Whether two lists of regexes select a common topic cannot be decided from the regexes alone. Two flows into the same
cluster are therefore tested with a few example topic names. They are refused if both flows select one of these names
and would write to the same target topic. The daemon detects all other cases when it sees the actual topics.

With `identity` naming or a template, topic names do not show where records come from. A ring of flows with such naming
would copy its own output forever. Such a ring is refused unless the regexes prove that no record can travel around the
ring.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence

from mirrord.config.policy_checks import BuiltIn
from mirrord.config.policy_names import is_built_in, is_template
from mirrord.config.schema import FlowConfig
from mirrord.model.names import RESERVED_PREFIXES

_EXAMPLE = "orders"
_SPECIAL = set(".^$*+?{}[]|()\\")


def check_flows(
    flows: Sequence[FlowConfig], tells_origin: Callable[[FlowConfig], bool] = BuiltIn.tells_origin
) -> Iterator[tuple[int, str]]:
    """Check the flows against each other. Yield every fault as an index and a message. The index identifies the flow
    for which the fault is reported: of the flows involved, the one that comes last in the configuration.

    `tells_origin` returns whether the names of a flow's target topics reveal every cluster that a topic has passed
    through.
    """
    for index, flow in enumerate(flows):
        if flow.source and flow.source == flow.target:
            yield index, f'from and to are both "{flow.source}"; a flow needs two clusters'
            continue
        if reserved := _reserved_names(flow):
            yield index, reserved
        for former in flows[:index]:
            if former.name == flow.name:
                yield index, f'two flows are named "{flow.name}"; give one of them a different name = "..."'
            meet = _same_target_names(former, flow) and not _exchange(flows, former.source, flow.source)
            if meet and (topic := common_topic(former, flow)) is not None:
                yield index, _one_name(former, flow, topic)
            for line in both_ways(former, flow):
                yield index, line
        for line in (*_counted_both_ways(flows[: index + 1], index), *_own_copies(flows[: index + 1], index)):
            yield index, line
        if ring := _ring(flows[: index + 1], index, tells_origin):
            if not _is_mesh(flows, ring):
                yield index, _round_for_ever(ring)
        elif broken := _not_forwarded(flows, index):
            yield index, broken


def _reserved_names(flow: FlowConfig) -> str:
    """Return a message if the flow would give every target topic a name that only a topic of Kafka or mirrord may have.
    Return an empty string otherwise."""
    example = ""
    if flow.naming == "prefix":
        example = f"{flow.source}{flow.separator}{_EXAMPLE}"
    elif is_template(flow.naming):
        example = flow.naming.replace("{topic}", _EXAMPLE)
    if not example.startswith(RESERVED_PREFIXES):
        return ""
    setting = f'naming = "{flow.naming}"'
    if flow.naming == "prefix":
        setting += f' with the alias "{flow.source}"'
    return (
        f'{setting} makes names such as "{example}"; names that begin with '
        f"{' or '.join(RESERVED_PREFIXES)} belong to Kafka and mirrord, and no target topic may have them"
    )


def _one_name(former: FlowConfig, flow: FlowConfig, topic: str) -> str:
    or_prefix = ', or use naming = "prefix"' if flow.naming != "prefix" else ""
    return (
        f'the flows "{former.name}" and "{flow.name}" would both copy topics such as "{topic}" into one topic of '
        f'"{flow.target}"; exclude it in one of them{or_prefix}'
    )


def _round_for_ever(ring: Sequence[FlowConfig]) -> str:
    if all(flow.naming == "identity" for flow in ring):
        aliases = " -> ".join([ring[0].source, *(flow.target for flow in ring)])
        return (
            f'naming = "identity" in a ring ({aliases}): under the same names, copies are not copied further, so every '
            "two of these clusters need flows in both directions"
        )
    naming = next((flow.naming for flow in ring if flow.naming != "prefix"), ring[0].naming)
    aliases = " -> ".join([ring[0].source, *(flow.target for flow in ring)])
    return (
        f'naming = "{naming}" in a ring ({aliases}) would copy the same records around the ring forever; '
        'use naming = "prefix" in all of it, or topics that no two of these flows share'
    )


def goes_back(one: FlowConfig, other: FlowConfig) -> bool:
    """Return whether the two flows copy topics with the same names in opposite directions.

    This is the case if they connect the same two clusters, keep topic names and may select a common topic.
    """
    is_back = (one.source, one.target) == (other.target, other.source)
    return is_back and one.naming == other.naming == "identity" and _may_share(one, other)


def both_ways(one: FlowConfig, other: FlowConfig) -> Iterator[str]:
    """Yield one line for each setting that is invalid if two flows copy the same topics in opposite directions.

    Configs, ACLs and consumer groups may each be synced by only one of the two flows. Otherwise, each flow would
    repeatedly copy back the changes that the other flow has made. The flow that syncs groups must have
    `groups.both_ways` set.
    """
    if not goes_back(one, other):
        return
    names = f'the flows "{one.name}" and "{other.name}" copy topics with the same names in both directions'
    if one.sync.configs and other.sync.configs:
        yield f"{names}; only one of them may sync configs: set sync = {{ configs = false }} in the other one"
    if one.sync.acls_mode != "off" and other.sync.acls_mode != "off":
        yield f'{names}; only one of them may sync ACLs: set sync = {{ acls = "off" }} in the other one'
    following = [flow for flow in (one, other) if flow.follows_groups]
    if len(following) == 2:
        yield (
            f"{names}; only one of them may sync groups (with groups.reverse in both directions): "
            'set groups = { mode = "off" } and mm2_records = { checkpoints = false } in ' + f'"{other.name}"'
        )
    for flow in following:
        if not flow.groups.both_ways:
            yield (
                f"{names}; a group's position counts the records of both: set groups = {{ both_ways = true }} in "
                f'"{flow.name}", or groups = {{ mode = "off" }} and mm2_records = {{ checkpoints = false }}'
            )


def _counted_both_ways(flows: Sequence[FlowConfig], index: int) -> Iterator[str]:
    """Yield one line for each reason why positions cannot be translated with `groups.both_ways`: either the flow does
    not keep topic names, or another flow copies records from a third cluster to the same topics."""
    last = flows[index]
    if last.groups.both_ways and last.naming != "identity":
        yield f'groups.both_ways is for naming = "identity"; found naming = "{last.naming}"'
    for flow in flows:
        if not (flow.groups.both_ways and flow.follows_groups):
            continue
        pair = {flow.source, flow.target}
        for third in flows:
            is_third = third.target in pair and third.source not in pair and third.naming == "identity"
            if last in (flow, third) and is_third and _may_share(flow, third):
                yield (
                    f'groups.both_ways in "{flow.name}": "{third.name}" copies records of a third cluster into the '
                    'same topics, and a position among three clusters is not known: set groups = { mode = "off" } and '
                    "mm2_records = { checkpoints = false }"
                )


def _own_copies(flows: Sequence[FlowConfig], index: int) -> Iterator[str]:
    """Yield one line for each conflict with `on_recreated = "fresh"`.

    With this setting, a recreated source topic gets a separate target topic, whose name ends in a number.
    """
    last = flows[index]
    if last.on_recreated == "fresh" and (last.mm2_records.checkpoints or last.mm2_records.offset_syncs != "off"):
        yield (
            'on_recreated = "fresh" cannot be combined with mm2_records: their readers derive the source topic from '
            "the name of its copy; use mm2_records = { checkpoints = false, offset_syncs = "
            '"off" }, or on_recreated = "keep"'
        )
    for flow in flows:
        if flow.on_recreated == "fresh" and flow.naming != "prefix" and (ring := _path_back(flows, flow, last)):
            aliases = " -> ".join([flow.source, *(each.target for each in ring)])
            yield (
                f'on_recreated = "fresh" in "{flow.name}" with naming = "{flow.naming}" in a ring ({aliases}): a '
                'separate copy would be copied back as a different topic; use naming = "prefix", or '
                'on_recreated = "keep"'
            )


def _path_back(flows: Sequence[FlowConfig], first: FlowConfig, needed: FlowConfig) -> list[FlowConfig]:
    """Return a path of flows that begins with `first`, includes `needed`, and leads back to the source of `first`. On
    this path, each flow may copy what the flow before it has written. Return an empty list if there is no such path."""

    def walk(path: list[FlowConfig]) -> list[FlowConfig]:
        for flow in flows:
            if flow in path or flow.source != path[-1].target or not _may_feed(path[-1], flow):
                continue
            here = [*path, flow]
            found = here if flow.target == first.source else walk(here)
            if needed in found:
                return found
        return []

    return walk([first])


def _copies_between(flows: Sequence[FlowConfig], source: str, target: str) -> bool:
    return any((each.source, each.target, each.naming) == (source, target, "identity") for each in flows)


def _exchange(flows: Sequence[FlowConfig], one: str, other: str) -> bool:
    """Return whether two clusters copy topics to each other under the same names."""
    return _copies_between(flows, one, other) and _copies_between(flows, other, one)


def share_topics(flows: Sequence[FlowConfig], one: FlowConfig, other: FlowConfig) -> bool:
    """Return whether two flows into the same cluster are allowed to write to the same topics.

    This is allowed if both flows keep topic names, and the two source clusters copy topics to each other under the same
    names. The topics of both source clusters then contain the same records.
    """
    return one.naming == other.naming == "identity" and _exchange(flows, one.source, other.source)


def _is_mesh(flows: Sequence[FlowConfig], ring: Sequence[FlowConfig]) -> bool:
    """Return whether every cluster in a ring exchanges topics with all other clusters in the ring under the same names.

    Records then reach every cluster directly and need not travel around the ring.
    """
    clusters = [flow.source for flow in ring]
    pairs = ((one, other) for one in clusters for other in clusters if one < other)
    return all(flow.naming == "identity" for flow in ring) and all(_exchange(flows, *pair) for pair in pairs)


def _not_forwarded(flows: Sequence[FlowConfig], index: int) -> str:
    """Return a message if the records of one cluster reach a second cluster but not a third one, to which another flow
    copies from the second. A flow that keeps topic names does not forward copies, so the third cluster needs a flow
    directly from the first. Return an empty string if no such flow is missing."""
    flow = flows[index]
    for other in flows[:index]:
        for former, later in ((other, flow), (flow, other)):
            if former.target != later.source or later.target == former.source:
                continue
            topic = common_topic(former, later) if former.naming == later.naming == "identity" else None
            if topic is not None and not _copies_between(flows, former.source, later.target):
                return (
                    f'records of "{former.source}" in topics such as "{topic}" do not reach "{later.target}": under '
                    f'the same names, copies are not copied further; add a flow from "{former.source}" to '
                    f'"{later.target}", or use naming = "prefix"'
                )
    return ""


def _same_target_names(one: FlowConfig, other: FlowConfig) -> bool:
    if not one.target or one.target != other.target or one.naming != other.naming:
        return False
    if one.naming == "prefix":
        return one.source == other.source and one.separator == other.separator
    # Only the daemon can determine which names a third-party policy gives to topics from a different source.
    return is_built_in(one.naming) or (one.source, one.naming_settings) == (other.source, other.naming_settings)


def selects(flow: FlowConfig, topic: str) -> bool:
    """Return whether the lists `topics` and `exclude` of the flow select this topic name."""
    if any(re.fullmatch(pattern, topic) for pattern in flow.exclude):
        return False
    return any(re.fullmatch(pattern, topic) for pattern in flow.topics)


def common_topic(one: FlowConfig, other: FlowConfig) -> str | None:
    """Return a topic name that both flows select. Only a few candidate names are tried. If none of these is selected by
    both flows, return None."""
    prefixes = [literal_prefix(pattern) for pattern in one.topics + other.topics]
    for candidate in [_EXAMPLE, *(prefix + tail for tail in ("", _EXAMPLE) for prefix in prefixes)]:
        if candidate and selects(one, candidate) and selects(other, candidate):
            return candidate
    return None


def literal_prefix(pattern: str) -> str:
    """Return a prefix that all matches of the regex have in common. It need not be the longest one."""
    if "|" in pattern:
        return ""
    prefix: list[str] = []
    position = 0
    while position < len(pattern):
        char = pattern[position]
        if char == "\\" and pattern[position + 1 : position + 2] in _SPECIAL | {"-"}:
            char = pattern[position + 1]
            position += 1
        elif char in _SPECIAL:
            return "".join(prefix[:-1] if char in "*?{" else prefix)
        prefix.append(char)
        position += 1
    return "".join(prefix)


def _may_share(one: FlowConfig, other: FlowConfig) -> bool:
    """Return False only if the regexes prove that no topic name is selected by both flows."""
    ours = [literal_prefix(pattern) for pattern in one.topics if pattern not in other.exclude]
    theirs = [literal_prefix(pattern) for pattern in other.topics if pattern not in one.exclude]
    return _overlap(ours, theirs)


def _may_feed(one: FlowConfig, other: FlowConfig) -> bool:
    """Return False only if the regexes prove that `other` selects none of the topics that `one` writes to."""
    if one.naming == "identity":
        return _may_share(one, other)
    if not is_built_in(one.naming):
        return True
    before = one.source + one.separator if one.naming == "prefix" else one.naming.partition("{topic}")[0]
    written = [before + literal_prefix(pattern) for pattern in one.topics]
    return _overlap(written, [literal_prefix(pattern) for pattern in other.topics])


def _overlap(ours: Iterable[str], theirs: Sequence[str]) -> bool:
    return any(a.startswith(b) or b.startswith(a) for a in ours for b in theirs)


def _one_language(flows: Sequence[FlowConfig]) -> bool:
    """Return whether each of these flows can interpret the names of the topics that the other flows write to."""
    if all(flow.naming == "prefix" for flow in flows):
        return True
    return all((flow.naming, flow.naming_settings) == (flows[0].naming, flows[0].naming_settings) for flow in flows)


def _ring(
    flows: Sequence[FlowConfig], start: int, tells_origin: Callable[[FlowConfig], bool]
) -> list[FlowConfig] | None:
    """Return a ring that contains `flows[start]` and could copy its own output, or None if there is no such ring. A
    ring can copy its own output only if topic names do not reveal every cluster that a topic has passed through."""
    first = flows[start]

    def walk(path: list[FlowConfig]) -> list[FlowConfig] | None:
        former = path[-1]
        passed = [flow.source for flow in path]
        for flow in flows:
            if flow.source != former.target or not _may_feed(former, flow) or flow.target in passed[1:]:
                continue
            # If a topic keeps its name, every flow on the path must select that name.
            if all(each.naming == "identity" for each in path) and not _may_share(first, flow):
                continue
            here = [*path, flow]
            if flow.target != first.source:
                if found := walk(here):
                    return found
            elif _may_feed(flow, first) and not (_one_language(here) and all(map(tells_origin, here))):
                return here
        return None

    return walk([first])
