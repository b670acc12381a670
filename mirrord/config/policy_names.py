"""Defines the names by which a configuration refers to built-in and third-party policies. This module does not load any
policies."""

import math
import re
from collections.abc import Sequence
from typing import cast

from mirrord.config.fault_text import closest_name
from mirrord.config.security import Secret
from mirrord.config.value_kinds import ValueKind

Scalar = str | int | float | bool
Argument = Scalar | tuple[Scalar, ...]
PolicySettings = dict[str, Argument | Secret]
"""The settings of a policy, which may contain references to secrets. The class of a third-party policy is called with
the aliases of the source and the target, followed by these settings as keyword arguments, with the secrets in place of
the references."""

CLASS_RULE = 'a class as "module:Class"'
_TEMPLATE = re.compile(r"[A-Za-z0-9._-]*\{topic\}[A-Za-z0-9._-]*")
_CLASS = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", re.ASCII)
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")
_ARGUMENT = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_SETTINGS_RULE = (
    "a table of strings, numbers, true or false, and lists of them, and secrets such as "
    '{ secret = "env:NAME" }; the keys are names of arguments'
)


def is_template(naming: str) -> bool:
    """Return whether this value of `naming` is a template with a placeholder for the topic name."""
    return "{topic}" in naming


def is_class(text: str) -> bool:
    """Return whether this string is the path of a class, such as `package.module:Class`."""
    return _CLASS.fullmatch(text) is not None


class PolicyKind(ValueKind, frozen=True):
    """The kind of a key that names a policy. The value is a built-in name, a name that an installed package provides,
    or the path of a class, such as `package.module:Class`."""

    built_in: tuple[str, ...] = ()
    """The names of built-in policies."""
    has_templates: bool = False
    """Whether a template for topic names counts as a built-in policy."""
    has_settings: bool = False
    """Whether built-in policies accept settings, as third-party policies do."""

    def is_built_in(self, text: str) -> bool:
        """Return whether this string names a built-in policy."""
        return text in self.built_in or (self.has_templates and is_template(text))

    def rule(self, found: object, installed: Sequence[str] = ()) -> str:
        """Return a phrase that says what is allowed instead of `found`. `installed` contains the names of the policies
        that installed packages provide."""
        names = [*self.built_in, *installed]
        allowed = [
            *(['a template such as "dr-{topic}"'] if self.has_templates else []),
            *(f'"{name}"' for name in names),
        ]
        like = closest_name(found, names) if isinstance(found, str) else None
        if allowed:
            rule = " or ".join([", ".join(allowed), CLASS_RULE])
        else:
            rule = f"{CLASS_RULE}, or the name of an installed policy"
        return rule + (f'; did you mean "{like}"?' if like else "")


class SettingsKind(ValueKind, frozen=True):
    """The kind of a key that holds the settings of a policy, as a table."""

    policy: str = ""
    """The name of the field, in the same struct, that names the policy."""


def _accepts(found: object, *, has_templates: bool = False) -> bool:
    if not isinstance(found, str):
        return False
    if has_templates and "{" in found:
        return _TEMPLATE.fullmatch(found) is not None and found != "{topic}"
    return is_class(found) or _NAME.fullmatch(found) is not None


def _policy(*built_in: str, has_templates: bool = False, has_settings: bool = False) -> PolicyKind:
    def convert(found: object) -> object:
        if not _accepts(found, has_templates=has_templates):
            raise ValueError(kind.rule(found))
        return found

    names = [f'`"{name}"`' for name in built_in] + (['a template such as `"dr-{topic}"`'] if has_templates else [])
    allowed = ", ".join([*names, 'a class as `"module:Class"`, or the name of an installed policy'])
    kind = PolicyKind(convert, allowed, built_in=built_in, has_templates=has_templates, has_settings=has_settings)
    return kind


NAMING = _policy("prefix", "identity", has_templates=True)
SELECTION = _policy()
CONFIG_FILTER = _policy()
RECORD_FILTER = _policy("tombstones", "keys", has_settings=True)
RECORD_TRANSFORM = _policy("headers", has_settings=True)


def is_built_in(naming: str) -> bool:
    """Return whether this value of `naming` names a built-in policy."""
    return NAMING.is_built_in(naming)


def settings_of(policy: str) -> SettingsKind:
    """Return the kind of a key that holds the settings of a policy. `policy` is the name of the field, in the same
    struct, that names the policy."""
    return SettingsKind(
        settings,
        'a table of strings, numbers, `true` or `false`, lists of them, and secrets such as `{ secret = "env:NAME" }`',
        policy=policy,
    )


def settings(found: object) -> PolicySettings:
    """Return the settings in this table of a conf.toml. Each key must be a valid argument name. Each value must be a
    string, a number, a boolean, a list of such values, or a reference to a secret. Otherwise, ValueError is raised."""
    if not isinstance(found, dict):
        raise ValueError(_SETTINGS_RULE)
    return {_argument(name): _setting(value) for name, value in cast(dict[str, object], found).items()}


def _argument(name: str) -> str:
    if not _ARGUMENT.fullmatch(name):
        raise ValueError(_SETTINGS_RULE)
    return name


def _setting(value: object) -> Argument | Secret:
    if isinstance(value, list):
        return tuple(_scalar(item) for item in cast(list[object], value))
    return Secret.of_table(value) or _scalar(value)


def _scalar(value: object) -> Scalar:
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(_SETTINGS_RULE)
    if not isinstance(value, str | int | float | bool):
        raise ValueError(_SETTINGS_RULE)
    return value
