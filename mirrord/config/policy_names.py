"""How a configuration names policies: the built-in ones, and those of third parties. Nothing is loaded here."""

import math
import re
from collections.abc import Sequence
from typing import cast

from mirrord.config import toml_reader as read

Scalar = str | int | float | bool
PolicySettings = dict[str, Scalar | tuple[Scalar, ...]]
"""Keyword arguments with which a third-party policy is created, in addition to source and target."""

NAMINGS = ("prefix", "identity")
"""The built-in names of `naming`, in addition to templates. `select` and `filter_configs` have no built-in names."""
RECORD_FILTERS = ("tombstones", "keys")
RECORD_TRANSFORMS = ("headers",)
"""The built-in names of `records.filter` and `records.transform`. They accept settings, like third-party policies."""
CLASS_RULE = 'a class as "module:Class"'
_TEMPLATE = re.compile(r"[A-Za-z0-9._-]*\{topic\}[A-Za-z0-9._-]*")
_CLASS = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", re.ASCII)
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")
_ARGUMENT = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_SETTINGS_RULE = "a table of texts, numbers, true or false, and lists of them; the keys are names of arguments"


def is_template(naming: str) -> bool:
    """Whether this text has a placeholder for the topic's name."""
    return "{topic}" in naming


def is_class(text: str) -> bool:
    """Whether this text is a dotted path to a class."""
    return _CLASS.fullmatch(text) is not None


def is_built_in(naming: str) -> bool:
    """Whether this naming needs no third-party code."""
    return naming in NAMINGS or is_template(naming)


def unknown(key: str, found: object, installed: Sequence[str]) -> str:
    """Return the fault line for a text that names no policy.

    `installed` are the names that packages on this machine offer.
    """
    return f"found {read.shown(found)}; allowed: {_rule(key, found, installed)}"


def naming_of(found: object) -> str:
    """Check a naming: `prefix`, `identity`, a template, a dotted path, or a name that a package may offer."""
    if isinstance(found, str) and "{" in found:
        if _TEMPLATE.fullmatch(found) and found != "{topic}":
            return found
    elif isinstance(found, str) and (is_class(found) or _NAME.fullmatch(found)):
        return found
    raise ValueError(_rule("naming", found, ()))


def policy(found: object) -> str:
    """Check a policy: a dotted path, or a name that a package may offer."""
    if isinstance(found, str) and (is_class(found) or _NAME.fullmatch(found)):
        return found
    raise ValueError(_rule("", found, ()))


def record_policy(built_in: Sequence[str]) -> "read.Convert[str]":
    """Accept one of these names, a dotted path, or a name that a package may offer."""

    def convert(found: object) -> str:
        if isinstance(found, str) and (is_class(found) or _NAME.fullmatch(found)):
            return found
        raise ValueError(_rule("", found, built_in))

    return convert


def settings(found: object) -> PolicySettings:
    """Read a policy's table of settings."""
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
