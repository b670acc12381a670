"""`${provider:path:key}` in the values of a properties file, as Kafka's ConfigTransformer reads it.

The three providers that read plain files and the environment are known by their classes; any other one is Java code.
"""

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal

import msgspec

from mirrord.config.java_properties import decode, parse
from mirrord.model.errors import EnvironmentFault

Kind = Literal["env", "file", "directory"]
DECLARATION = "config.providers"
CLASSES: dict[str, Kind] = {
    "org.apache.kafka.common.config.provider.EnvVarConfigProvider": "env",
    "org.apache.kafka.common.config.provider.FileConfigProvider": "file",
    "org.apache.kafka.common.config.provider.DirectoryConfigProvider": "directory",
}
UNDECLARED: dict[str, Kind] = {"env": "env", "file": "file", "dir": "directory", "directory": "directory"}
"""What these names mean where the file declares no provider of that name; Kafka would leave the text as it is."""
_EXPRESSION = re.compile(r"\$\{([^}]*?):(([^}]*?):)?([^}]*?)\}")


class Expression(msgspec.Struct, frozen=True):
    """One `${provider:path:key}`."""

    kind: Kind
    path: str
    key: str

    @property
    def reference(self) -> str:
        """The same as a reference of conf.toml."""
        match self.kind:
            case "env":
                return f"env:{self.key}"
            case "file":
                return f"properties:{self.path}#{self.key}"
            case "directory":
                return f"file:{Path(self.path) / self.key}"

    def resolve(self) -> str:
        """The text behind it. Raises EnvironmentFault when it is not there."""
        match self.kind:
            case "env":
                if self.key not in os.environ:
                    raise EnvironmentFault(f"the environment variable {self.key} is not set")
                return os.environ[self.key]
            case "file":
                return read_property(self.path, self.key)
            case "directory":
                return read_text(str(Path(self.path) / self.key))


class Providers:
    """The providers that a file declares: name to kind."""

    def __init__(self, declared: Mapping[str, Kind]) -> None:
        self._kinds: dict[str, Kind] = {**UNDECLARED, **declared}

    @staticmethod
    def of(values: Mapping[str, str]) -> "Providers":
        """The declarations of a file, without those of other classes."""
        found: dict[str, Kind] = {}
        for key, value in values.items():
            name = key.removeprefix(f"{DECLARATION}.").removesuffix(".class")
            if key == f"{DECLARATION}.{name}.class" and value.strip() in CLASSES:
                found[name] = CLASSES[value.strip()]
        return Providers(found)

    def whole(self, value: str) -> Expression | None:
        """The expression that is all of the value; None when there is more or less in it."""
        match = _EXPRESSION.fullmatch(value.strip())
        return self._expression(match) if match else None

    def expand(self, value: str, resolve: Callable[[Expression], str] = Expression.resolve) -> str:
        """The value with every expression replaced; what names no known provider stays. Raises EnvironmentFault."""

        def replace(match: re.Match[str]) -> str:
            expression = self._expression(match)
            return match[0] if expression is None else resolve(expression)

        return _EXPRESSION.sub(replace, value)

    def _expression(self, match: re.Match[str]) -> Expression | None:
        kind = self._kinds.get(match[1])
        if kind is None:
            return None
        return Expression(kind, match[3] or "", match[4])


def read_text(path: str) -> str:
    """A file's text. Raises EnvironmentFault."""
    try:
        return decode(Path(path).read_bytes())
    except OSError as error:
        raise EnvironmentFault(f"the file {path} cannot be read: {error.strerror}") from None


def read_property(path: str, key: str) -> str:
    """The value of a key in a properties file, its expressions replaced. Raises EnvironmentFault, ConfigError."""
    values = {entry.key: entry.value for entry in parse(read_text(path), path)}
    if key not in values:
        raise EnvironmentFault(f"the file {path} holds no key {key}")
    return Providers.of(values).expand(values[key])
