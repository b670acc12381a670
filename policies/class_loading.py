"""Loads policies that a user provides: finds the class that the configuration names, checks its interface, and creates
an instance of the class.

The configuration names a class by its dotted path (`module:Class`), or by the name of an entry point of an installed
package. Python must be able to find the module: either it is installed together with mirrord, or its folder is on
PYTHONPATH. Every fault leads to a ConfigError that says what was found and what is allowed.
"""

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Iterable, Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Any, NamedTuple, cast

from mirrord.config.fault_text import closest_name, shown
from mirrord.config.policy_checks import unknown
from mirrord.config.policy_names import Argument, PolicySettings, is_class
from mirrord.config.security import resolved_settings
from mirrord.model.errors import ConfigError, EnvironmentFault
from mirrord.model.known_secrets import mask
from mirrord.model.names import Alias

LONGEST_LINE = 200


class PolicyRequirements(NamedTuple):
    """The requirements that a class must meet if a user names it under one configuration key."""

    key: str
    """The configuration key within the flow, such as `records.filter`."""
    group: str
    """The entry point group in which packages can provide such classes."""
    methods: tuple[str, ...]
    """The names of the required methods. Each method takes one argument."""
    may: tuple[str, ...] = ()
    """The names of the optional methods."""
    takes: str = "text"
    """What the methods take as their argument. This text is used in error messages."""


NAMING = PolicyRequirements("naming", "mirrord.naming", ("target_topic", "source_topic"), ("hops", "target_prefix"))
SELECTION = PolicyRequirements("select", "mirrord.selection", ("refusal",))
RECORD_FILTER = PolicyRequirements("records.filter", "mirrord.record-filters", ("keeps",), takes="record")
RECORD_TRANSFORM = PolicyRequirements("records.transform", "mirrord.record-transforms", ("changed",), takes="record")
PROPERTIES = PolicyRequirements("sync.filter_configs", "mirrord.properties", ("passes",), ("takes_default",))


def make(
    kind: PolicyRequirements,
    text: str,
    source: Alias,
    target: Alias,
    given: PolicySettings,
    built_in: str | None = None,
) -> object:
    """Return an instance of the class that `text` names. Raises ConfigError if the class cannot be loaded or does not
    meet the requirements in `kind`, or if a secret in the settings that are given cannot be read.

    If `text` is the name of a built-in policy, `built_in` is the dotted path of its class.
    """
    try:
        settings = resolved_settings(given)
    except EnvironmentFault as fault:
        raise _fault(text, str(fault)) from fault
    found = _class(kind, built_in or text)
    if built_in:
        return _make_own(text, found, source, target, settings)
    for method in kind.methods:
        if not callable(getattr(found, method, None)):
            there = [name for name in dir(found) if not name.startswith("_")]
            raise _fault(text, f"the class has no method {method}{_meant(method, there)} ({_wanted(kind)})")
    _check_settings(text, found, source, target, settings)
    try:
        policy = found(source, target, **settings)
    except (Exception, SystemExit) as error:
        raise _fault(text, f"making an object of it raised {line_of(error)}") from error
    for method in (*kind.methods, *kind.may):
        if hasattr(policy, method):
            _check_method(kind, text, getattr(policy, method), method)
    return policy


def _make_own(
    text: str, found: Callable[..., object], source: Alias, target: Alias, settings: Mapping[str, Argument]
) -> object:
    """Return an instance of the built-in class `found`. Only the settings are checked. Raises ConfigError if they are
    invalid.
    """
    known = [name for name in inspect.signature(found).parameters if name not in {"source", "target"}]
    strange = next((name for name in settings if name not in known), "")
    if strange:
        allowed = ", ".join(known) or "no settings"
        raise _fault(text, f"it takes no setting {shown(strange)}{_meant(strange, known)}; allowed: {allowed}")
    try:
        return found(source, target, **settings)
    except ValueError as error:
        raise _fault(text, str(error)) from error


def line_of(error: BaseException) -> str:
    """Return the type and the message of an exception as one short line."""
    lines = mask(f"{type(error).__name__}: {error}").strip().splitlines()
    return lines[0].removesuffix(": ")[:LONGEST_LINE]


def _class(kind: PolicyRequirements, text: str) -> Callable[..., object]:
    path = text if is_class(text) else _entry_point(kind, text)
    name, _, attributes = path.partition(":")
    try:
        found: object = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise _fault(text, f"importing {name} raised {line_of(error)}") from error
        where = "allowed: one that is installed with mirrord, or whose folder is in PYTHONPATH"
        raise _fault(text, f"there is no module {error.name}; {where}{_meant_module(error.name)}") from error
    except (Exception, SystemExit) as error:
        raise _fault(text, f"importing {name} raised {line_of(error)}") from error
    for attribute in attributes.split("."):
        if not hasattr(found, attribute):
            raise _fault(text, f"{name} has no {attribute}{_meant(attribute, _classes(found))}")
        found = getattr(found, attribute)
    if not isinstance(found, type):
        raise _fault(text, f"it is not a class but {_article(type(found).__name__)}; {_wanted(kind)}")
    return cast("Callable[..., object]", found)


def _entry_point(kind: PolicyRequirements, name: str) -> str:
    known: dict[str, list[EntryPoint]] = {}
    for each in entry_points(group=kind.group):
        known.setdefault(each.name, []).append(each)
    if name not in known:
        raise ConfigError(unknown(kind.key, name, sorted(known)))
    paths = sorted({each.value.partition("[")[0].strip() for each in known[name]})
    if len(paths) > 1:
        raise _fault(name, f"several packages offer it: {', '.join(paths)}; allowed: one of these paths")
    if not is_class(paths[0]):
        raise _fault(name, f'the package that offers it names {shown(paths[0])}; allowed: "module:Class"')
    return paths[0]


def _check_settings(
    text: str, found: Callable[..., object], source: Alias, target: Alias, settings: Mapping[str, object]
) -> None:
    """Raise ConfigError unless the class accepts the two aliases and these settings as arguments. Even if it accepts
    them, its constructor may still raise an exception.
    """
    try:
        signature = inspect.signature(found)
    except (TypeError, ValueError):
        return  # a compiled class may have no signature
    try:
        signature.bind(source, target, **settings)
    except TypeError as error:
        strange = next((name for name in settings if name not in signature.parameters), "")
        hint = _meant(strange, list(signature.parameters)) if strange else ""
        what = "as Class(source, target), and with the settings table by their names"
        line = f"{found.__name__}{signature} does not accept the arguments that it is given: {error}{hint}"
        raise _fault(text, f"{line}; it is made {what}") from None


def _check_method(kind: PolicyRequirements, text: str, method: Any, name: str) -> None:
    if not callable(method):
        raise _fault(text, f"{name} is not a method; {_wanted(kind)}")
    if inspect.iscoroutinefunction(method) or inspect.isasyncgenfunction(method):
        raise _fault(text, f"{name} is async; allowed: an ordinary method, which answers at once")
    try:
        inspect.signature(method).bind("it")
    except TypeError:
        line = f"{name}{inspect.signature(method)} does not take one {kind.takes}, which is all it gets"
        raise _fault(text, line) from None
    except ValueError:
        return  # compiled code may have no signature


def _fault(text: str, line: str) -> ConfigError:
    return ConfigError(f"found {shown(text)}; {line}")


def _wanted(kind: PolicyRequirements) -> str:
    may = f"; it may have {' and '.join(kind.may)}" if kind.may else ""
    return f"allowed: a class with {' and '.join(kind.methods)}{may}"


def _article(name: str) -> str:
    return f"a{'n' if name[0] in 'aeiou' else ''} {name}"


def _meant(name: str, known: Iterable[str]) -> str:
    like = closest_name(name, known)
    return f'; did you mean "{like}"?' if like else ""


def _meant_module(name: str) -> str:
    """Return a hint that names the existing module whose name is most similar to `name`. Only modules in the same
    package, or at the top level, are considered. Return an empty string if no name is similar."""
    parent, _, last = name.rpartition(".")
    path = getattr(importlib.import_module(parent), "__path__", []) if parent else None
    return _meant(last, [module.name for module in pkgutil.iter_modules(path)])


def _classes(module: object) -> list[str]:
    return [name for name in dir(module) if isinstance(getattr(module, name, None), type)]
