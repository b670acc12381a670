"""Resolves expressions such as `${provider:path:key}` in properties files, as Kafka's ConfigTransformer does.

mirrord has equivalents of Kafka's three providers, which read environment variables, files and directories. It
recognizes them by their class names. Any other provider would be Java code, which mirrord does not run.
"""

import os
import re
import stat
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
MOST_BYTES = 16 << 20
"""Maximum size of a file that contains secrets or properties."""
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
    return decode(read_bytes(path))


def read_bytes(path: str) -> bytes:
    """Return the contents of a file. Raises EnvironmentFault if it cannot be read, is not a regular file, or is larger
    than `MOST_BYTES`. Reading a pipe could take forever, and so could reading a device."""
    try:
        # Without O_NONBLOCK, opening a pipe would wait for a writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise EnvironmentFault(f"{path} is not a regular file")
            with os.fdopen(descriptor, "rb", closefd=False) as file:
                contents = file.read(MOST_BYTES + 1)
        finally:
            os.close(descriptor)
    except (OSError, ValueError) as error:  # ValueError: the path contains a zero byte
        reason = error.strerror if isinstance(error, OSError) else error
        raise EnvironmentFault(f"the file {path} cannot be read: {reason}") from None
    if len(contents) > MOST_BYTES:
        raise EnvironmentFault(f"the file {path} is larger than {MOST_BYTES >> 20} MiB")
    return contents


def read_property(path: str, key: str) -> str:
    """Return the value of a key in a properties file, with its expressions replaced.

    Raises EnvironmentFault if the file cannot be read, does not contain the key, or contains an expression that cannot
    be resolved. Raises ConfigError if it is not a valid properties file.
    """
    values = {entry.key: entry.value for entry in parse(read_text(path), path)}
    if key not in values:
        raise EnvironmentFault(f"the file {path} has no key {key}")
    return Providers.of(values).expand(values[key])
