"""How a configuration names policies: the built-in ones, and those of third parties.

Nothing is loaded here. Whoever reads a file hands in a `PolicyCheck` that can load (`policies.flows.LOADING`); without
one, only the built-in names are known, and what a class behind a dotted path is worth stays open.
"""

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Protocol, cast

from mirrord.config import toml_reader as read

if TYPE_CHECKING:
    from mirrord.config.schema import FlowConfig

Scalar = str | int | float | bool
PolicySettings = dict[str, Scalar | tuple[Scalar, ...]]
"""What a policy of a third party is made with, beside source and target: keyword arguments."""

NAMINGS = ("prefix", "identity")
"""The built-in names of `naming`; templates come on top. `select` and `filter_configs` have none."""
RECORD_FILTERS = ("tombstones", "keys")
RECORD_TRANSFORMS = ("headers",)
"""Those of `records.filter` and `records.transform`; they take settings as those of third parties do."""
CLASS_RULE = 'a class as "module:Class"'
_TEMPLATE = re.compile(r"[A-Za-z0-9._-]*\{topic\}[A-Za-z0-9._-]*")
_CLASS = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", re.ASCII)
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")
_ARGUMENT = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_SETTINGS_RULE = "a table of texts, numbers, true or false, and lists of them; the keys are names of arguments"


class PolicyCheck(Protocol):
    """What is known of policies beyond their names."""

    def faults(self, flow: "FlowConfig") -> Iterable[tuple[str, str]]:
        """Each policy of the flow that cannot be used: the key below the flow, and one line."""
        ...

    def tells_origin(self, flow: "FlowConfig") -> bool:
        """Whether the names that the flow gives tell every cluster that a topic has passed."""
        ...


class BuiltIn:
    """A `PolicyCheck` that loads nothing."""

    def faults(self, flow: "FlowConfig") -> Iterator[tuple[str, str]]:
        for key, text, _ in third_party(flow):
            if not is_class(text):
                yield key, unknown(key, text, ())
        for key, fault in needless_settings(flow):
            yield key, fault

    @staticmethod
    def tells_origin(flow: "FlowConfig") -> bool:
        return flow.naming == "prefix"


class Unjudged:
    """A `PolicyCheck` for whoever asks no policy anything: what only loading can tell counts as right.

    So a daemon can be seen, and stopped, from where its policies are not installed.
    """

    def faults(self, flow: "FlowConfig") -> Iterator[tuple[str, str]]:
        return needless_settings(flow)

    def tells_origin(self, flow: "FlowConfig") -> bool:
        return flow.naming == "prefix" or not is_built_in(flow.naming)


def is_template(naming: str) -> bool:
    """Whether this text holds a place for the topic's name."""
    return "{topic}" in naming


def is_class(text: str) -> bool:
    """Whether this text is a dotted path to a class."""
    return _CLASS.fullmatch(text) is not None


def is_built_in(naming: str) -> bool:
    """Whether this naming needs no code of a third party."""
    return naming in NAMINGS or is_template(naming)


def third_party(flow: "FlowConfig") -> Iterator[tuple[str, str, PolicySettings]]:
    """What the flow takes from third parties: the key below the flow, the text, the settings."""
    if not is_built_in(flow.naming):
        yield "naming", flow.naming, flow.naming_settings
    if flow.select:
        yield "select", flow.select, flow.select_settings
    if flow.sync.filter_configs:
        yield "sync.filter_configs", flow.sync.filter_configs, flow.sync.filter_settings
    own = {"records.filter": RECORD_FILTERS, "records.transform": RECORD_TRANSFORMS}
    yield from (each for each in record_policies(flow) if each[1] not in own[each[0]])


def record_policies(flow: "FlowConfig") -> Iterator[tuple[str, str, PolicySettings]]:
    """The policies that look at records, built in or not: the key below the flow, the text, the settings."""
    if flow.records.filter:
        yield "records.filter", flow.records.filter, flow.records.filter_settings
    if flow.records.transform:
        yield "records.transform", flow.records.transform, flow.records.transform_settings


def needless_settings(flow: "FlowConfig") -> Iterator[tuple[str, str]]:
    """Settings for a policy that takes none."""
    if flow.naming_settings and is_built_in(flow.naming):
        yield "naming_settings", f'naming = "{flow.naming}" takes no settings; they are for {CLASS_RULE}'
    if flow.select_settings and not flow.select:
        yield "select_settings", "there is no select that takes them"
    if flow.sync.filter_settings and not flow.sync.filter_configs:
        yield "sync.filter_settings", "there is no filter_configs that takes them"
    for key in ("filter", "transform"):
        if getattr(flow.records, f"{key}_settings") and not getattr(flow.records, key):
            yield f"records.{key}_settings", f"there is no {key} that takes them"


def unknown(key: str, found: object, installed: Sequence[str]) -> str:
    """The line for a text that names nothing. `installed` are the names that packages on this machine offer."""
    return f"found {read.shown(found)}; allowed: {_rule(key, found, installed)}"


def naming_of(found: object) -> str:
    """`prefix`, `identity`, a template, a dotted path, or a name that a package may offer."""
    if isinstance(found, str) and "{" in found:
        if _TEMPLATE.fullmatch(found) and found != "{topic}":
            return found
    elif isinstance(found, str) and (is_class(found) or _NAME.fullmatch(found)):
        return found
    raise ValueError(_rule("naming", found, ()))


def policy(found: object) -> str:
    """A dotted path, or a name that a package may offer."""
    if isinstance(found, str) and (is_class(found) or _NAME.fullmatch(found)):
        return found
    raise ValueError(_rule("", found, ()))


def record_policy(built_in: Sequence[str]) -> "read.Convert[str]":
    """One of these names, a dotted path, or a name that a package may offer."""

    def convert(found: object) -> str:
        if isinstance(found, str) and (is_class(found) or _NAME.fullmatch(found)):
            return found
        raise ValueError(_rule("", found, built_in))

    return convert


def settings(found: object) -> PolicySettings:
    """A table for a policy."""
    if not isinstance(found, dict):
        raise ValueError(_SETTINGS_RULE)
    return {_argument(name): _setting(value) for name, value in cast(dict[str, object], found).items()}


def _rule(key: str, found: object, installed: Sequence[str]) -> str:
    own = {"naming": NAMINGS, "records.filter": RECORD_FILTERS, "records.transform": RECORD_TRANSFORMS}
    names = [*own.get(key, ()), *installed]
    allowed = [*(['a template such as "dr-{topic}"'] if key == "naming" else []), *(f'"{name}"' for name in names)]
    like = read.nearest(found, names) if isinstance(found, str) else None
    rule = (
        " or ".join([", ".join(allowed), CLASS_RULE]) if allowed else f"{CLASS_RULE}, or the name of an installed one"
    )
    return rule + (f'; did you mean "{like}"?' if like else "")


def _argument(name: str) -> str:
    if not _ARGUMENT.fullmatch(name):
        raise ValueError(_SETTINGS_RULE)
    return name


def _setting(value: object) -> Scalar | tuple[Scalar, ...]:
    if isinstance(value, list):
        return tuple(_scalar(item) for item in cast(list[object], value))
    return _scalar(value)


def _scalar(value: object) -> Scalar:
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(_SETTINGS_RULE)
    if not isinstance(value, str | int | float | bool):
        raise ValueError(_SETTINGS_RULE)
    return value
