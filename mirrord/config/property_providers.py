"""Resolves expressions such as `${provider:path:key}` in properties files, as Kafka's ConfigTransformer does.

mirrord has equivalents of Kafka's three providers, which read environment variables, files and directories. It
recognizes them by their class names. Any other provider would be Java code, which mirrord does not run.
"""

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal

import msgspec

from mirrord.config.java_properties import decode, parse
from mirrord.model.errors import EnvironmentFault

ProviderKind = Literal["env", "file", "directory"]
DECLARATION = "config.providers"
CLASSES: dict[str, ProviderKind] = {
    "org.apache.kafka.common.config.provider.EnvVarConfigProvider": "env",
    "org.apache.kafka.common.config.provider.FileConfigProvider": "file",
    "org.apache.kafka.common.config.provider.DirectoryConfigProvider": "directory",
}
UNDECLARED: dict[str, ProviderKind] = {"env": "env", "file": "file", "dir": "directory", "directory": "directory"}
"""Provider names that work even if the file does not declare a provider with that name. Kafka, in contrast, leaves an
expression with an undeclared provider unchanged."""
_EXPRESSION = re.compile(r"\$\{([^}]*?):(([^}]*?):)?([^}]*?)\}")


class Expression(msgspec.Struct, frozen=True):
    """One expression of the form `${provider:path:key}` or `${provider:key}`."""

    kind: ProviderKind
    path: str
    key: str

    @property
    def reference(self) -> str:
        """The expression, converted to the secret-reference syntax of conf.toml, such as `env:NAME`."""
        match self.kind:
            case "env":
                return f"env:{self.key}"
            case "file":
                return f"properties:{self.path}#{self.key}"
            case "directory":
                return f"file:{Path(self.path) / self.key}"

    def resolve(self) -> str:
        """Return the value to which the expression refers. Raises EnvironmentFault if there is no such value."""
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
    """The providers whose expressions are resolved: those that a file declares, and those in `UNDECLARED`, which need
    no declaration."""

    def __init__(self, declared: Mapping[str, ProviderKind]) -> None:
        self._kinds: dict[str, ProviderKind] = {**UNDECLARED, **declared}

    @staticmethod
    def of(values: Mapping[str, str]) -> "Providers":
        """Return the providers for a file with these values. Providers that the file declares with an unknown class are
        ignored."""
        found: dict[str, ProviderKind] = {}
        for key, value in values.items():
            name = key.removeprefix(f"{DECLARATION}.").removesuffix(".class")
            if key == f"{DECLARATION}.{name}.class" and value.strip() in CLASSES:
                found[name] = CLASSES[value.strip()]
        return Providers(found)

    def whole(self, value: str) -> Expression | None:
        """If the entire value is a single expression with a known provider, return the expression. Otherwise, return
        None."""
        match = _EXPRESSION.fullmatch(value.strip())
        return self._expression(match) if match else None

    def expand(self, value: str, resolve: Callable[[Expression], str] = Expression.resolve) -> str:
        """Return the value with every expression replaced. Raises EnvironmentFault if an expression cannot be resolved.

        An expression is left unchanged if its provider is unknown.
        """

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
    """Return a file's text. Raises EnvironmentFault if the file cannot be read."""
    try:
        return decode(Path(path).read_bytes())
    except OSError as error:
        raise EnvironmentFault(f"the file {path} cannot be read: {error.strerror}") from None


def read_property(path: str, key: str) -> str:
    """Return the value of a key in a properties file, with its expressions replaced.

    Raises EnvironmentFault if the file cannot be read, does not contain the key, or contains an expression that cannot
    be resolved. Raises ConfigError if it is not a valid properties file.
    """
    values = {entry.key: entry.value for entry in parse(read_text(path), path)}
    if key not in values:
        raise EnvironmentFault(f"the file {path} has no key {key}")
    return Providers.of(values).expand(values[key])
