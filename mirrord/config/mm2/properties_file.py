"""Reads the values of an mm2.properties file: finds them by key, replaces expressions such as `${env:NAME}`, converts
the values, and collects every fault."""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple, TypeVar

from mirrord.config.fault_text import closest_name
from mirrord.config.java_properties import Property, parse, split_list
from mirrord.config.mm2.property_meanings import JavaClass
from mirrord.config.property_providers import CLASSES, DECLARATION, Providers
from mirrord.config.security import Secret
from mirrord.config.value_parsers import Convert
from mirrord.model.errors import ConfigError, EnvironmentFault

T = TypeVar("T")
_HIDDEN = ("password", "secret", "jaas", "keystore.key", "certificate")


class PropertyValue(NamedTuple):
    """One value of the file. `raw` is the value as it is written in the file, possibly with expressions such as
    `${env:NAME}`. In `text`, the expressions have been replaced, unless `PropertiesFile.find_secret` returned the
    value."""

    key: str
    line: int
    raw: str
    text: str


class PropertiesFile:
    """One mm2.properties file. A method that detects a fault records it and continues with a placeholder value."""

    def __init__(self, text: str, file_name: str) -> None:
        """Parse the text. Raises ConfigError if it is not a valid properties file."""
        self.file_name = file_name
        entries = parse(text, file_name)
        self.entries: Mapping[str, Property] = {entry.key: entry for entry in entries}
        self.repeated = [entry for entry in entries if self.entries[entry.key] is not entry]
        self.providers = Providers.of({key: entry.value for key, entry in self.entries.items()})
        self.taken: set[str] = set()
        self._faults: list[tuple[int, str]] = []
        self._check_providers()

    def find(self, *keys: str) -> PropertyValue | None:
        """Return the value of the first of these keys that the file contains. Return None if the file contains none of
        them.

        The result is also None if an expression in the value cannot be resolved. In that case, a fault is recorded.
        """
        for key in keys:
            entry = self.entries.get(key)
            if entry is None:
                continue
            self.taken.add(key)
            text = self.expand(key, entry.value)
            return None if text is None else PropertyValue(key, entry.line, entry.value, text.strip())
        return None

    def find_secret(self, *keys: str) -> PropertyValue | None:
        """Return the value of the first of these keys that the file contains. Return None if the file contains none of
        them.

        Expressions in the value are not replaced, because the secrets that they name may not exist yet. `text` is
        therefore the value as it is written in the file.
        """
        key = next((key for key in keys if key in self.entries), None)
        if key is None:
            return None
        self.taken.add(key)
        entry = self.entries[key]
        return PropertyValue(key, entry.line, entry.value, entry.value.strip())

    def expand(self, key: str, text: str) -> str | None:
        """Return the text with its expressions replaced.

        If an expression cannot be replaced, record a fault for the key and return None.
        """
        try:
            return self.providers.expand(text)
        except (EnvironmentFault, ConfigError) as fault:
            self.fault(key, f"{fault}")
            return None

    def secret(self, value: PropertyValue, option: str | None = None, raw: str | None = None) -> Secret:
        """Return a reference to the value or, with `option`, to one option of the value. With `option`, the value is a
        `sasl.jaas.config`, and `raw` is the option as it is written in the file.

        If the value or the option is a single expression such as `${env:NAME}`, the reference points to the source that
        the expression names. Otherwise, or if `raw` is None although `option` is given, it points to the key in this
        properties file.
        """
        expression = self.providers.whole(value.raw if raw is None else raw)
        if expression is not None and (option is None or raw is not None):
            reference, parts = expression.reference, 1
        else:
            path = Path(self.file_name).absolute()
            reference = f"properties:{path}#{value.key}{'#' + option if option else ''}"
            parts = 2 if option else 1
        # "#" separates the parts of a reference, so a path or a key must not contain it.
        if reference.startswith("properties:") and reference.count("#") != parts:
            self.fault(value.key, 'a secret cannot be referenced if the path or the key contains "#"')
            return Secret(reference)
        try:
            return Secret.parse(reference)
        except ValueError:
            self.wrong(value, "${env:NAME} or ${file:PATH:KEY}, or the secret itself")
            return Secret(reference)

    def fault(self, key: str, message: str) -> None:
        """Record a fault for a key, with the file name and the line number."""
        entry = self.entries.get(key)
        where = f"{self.file_name}:{entry.line}" if entry else self.file_name
        line = f"{where}: {key}: {message}"
        if (entry.line if entry else 0, line) not in self._faults:
            self._faults.append((entry.line if entry else 0, line))

    def wrong(self, value: PropertyValue, allowed: str) -> None:
        """Record a fault for a value that is not allowed. `allowed` says what is allowed instead."""
        hidden = any(part in value.key for part in _HIDDEN)
        self.fault(value.key, f"found {'***' if hidden else chr(34) + value.text + chr(34)}; allowed: {allowed}")

    def finish(self) -> None:
        """If any faults have been recorded, raise a ConfigError that lists all of them in the order of the file.
        Otherwise, do nothing."""
        if self._faults:
            count = "1 fault" if len(self._faults) == 1 else f"{len(self._faults)} faults"
            lines = [line for _, line in sorted(self._faults, key=lambda fault: fault[0])]
            raise ConfigError("\n".join([f"{self.file_name}: {count}", *(f"  {line}" for line in lines)]))

    # Value conversions.

    def boolean(self, value: PropertyValue | None, default: bool) -> bool:
        """Return the value `true` or `false` as a bool. Case is ignored. Without a value, return `default`."""
        if value is None:
            return default
        found = {"true": True, "false": False}.get(value.text.lower())
        if found is None:
            self.wrong(value, "true or false")
            return default
        return found

    def integer(self, value: PropertyValue | None, default: int, low: int, high: int) -> int:
        """Return the value as a whole number within [low, high]. Without a value, return `default`."""
        if value is None:
            return default
        try:
            number = int(value.text)
        except ValueError:
            number = low - 1
        if not low <= number <= high:
            self.wrong(value, f"a whole number from {low} to {high}")
            return default
        return number

    def choice(self, value: PropertyValue | None, known: Mapping[str, T], default: T) -> T:
        """Look up the value in `known`, and return the item found. If `known` does not contain the value, record a
        fault and return `default`. Without a value, return `default`."""
        if value is None:
            return default
        if value.text not in known:
            like = closest_name(value.text, known)
            self.wrong(
                value, " or ".join(f'"{name}"' for name in known) + (f'; did you mean "{like}"?' if like else "")
            )
            return default
        return known[value.text]

    def items(self, value: PropertyValue | None, default: tuple[T, ...], convert: Convert[T]) -> tuple[T, ...]:
        """Return the converted items of a comma-separated list. Without a value, return `default`."""
        if value is None:
            return default
        found: list[T] = []
        for item in split_list(value.text):
            try:
                found.append(convert(item))
            except ValueError as rule:
                self.fault(value.key, f'found "{item}"; allowed: {rule}')
        return tuple(found)

    def java_class(self, value: PropertyValue | None, name: str, rule: JavaClass) -> str | None:
        """Return the name of the Java class if mirrord has a built-in equivalent of the class. For any other class,
        record a fault that describes a replacement, and return None."""
        if value is None or not value.text:
            return None
        if value.text in rule.known:
            return value.text
        self.fault(
            value.key,
            f'found "{value.text}"; mirrord does not run Java classes, so {name} cannot be used. '
            f"Use instead: {rule.instead}",
        )
        return None

    def _check_providers(self) -> None:
        declared = self.find(DECLARATION)
        for name in split_list(declared.text) if declared else ():
            key = f"{DECLARATION}.{name}.class"
            found = self.find(key)
            if found is None:
                self.fault(DECLARATION, f"the provider {name} has no {key}")
            else:
                rule = JavaClass(
                    tuple(CLASSES), "${env:NAME}, ${file:PATH:KEY}, or references env:NAME and file:PATH in conf.toml"
                )
                self.java_class(found, key, rule)
