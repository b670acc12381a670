"""Reads a TOML document key by key, and collects all faults instead of stopping at the first one.

A `Document` represents the whole file, and a `Table` represents one table in it. The caller reads every key that it
knows, and passes the key's default and a function that converts the value. At the end, all keys that were never read
are reported as unknown. After a fault, reading continues with a placeholder value. No configuration with a placeholder
is returned, because `Document.finish` raises an error if there were any faults.
"""

import re
import tomllib
from typing import TypeVar, cast

from mirrord.config.fault_text import TYPE_NAMES, closest_name, shown
from mirrord.config.value_parsers import Convert
from mirrord.model.errors import ConfigError

T = TypeVar("T")
_MISSING = object()
_HEADER = re.compile(r"\s*(\[\[|\[)\s*([^\[\]]+?)\s*\]{1,2}\s*(#.*)?")
_KEY = re.compile(r"""\s*((?:[A-Za-z0-9_-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[A-Za-z0-9_-]+|"[^"]*"|'[^']*'))*)\s*=""")
_KEY_PART = re.compile(r"""[A-Za-z0-9_-]+|"[^"]*"|'[^']*'""")


def _key_path(dotted: str) -> str:
    return ".".join(part.strip("\"'") for part in _KEY_PART.findall(dotted))


def locate_keys(text: str) -> dict[str, int]:
    """Return the line number of each table header and each key. Headers and keys are identified by paths such as
    `flows[1].topics`.

    The lines are inspected one by one, without a TOML parser. Keys within an inline table are not included. For such a
    key, the caller uses the line of the key whose value is the inline table.
    """
    lines: dict[str, int] = {}
    counts: dict[str, int] = {}
    table = ""
    for number, line in enumerate(text.splitlines(), start=1):
        if header := _HEADER.fullmatch(line):
            table = _key_path(header[2])
            if header[1] == "[[":
                counts[table] = counts.get(table, -1) + 1
                table = f"{table}[{counts[table]}]"
            else:
                parent, _, rest = table.partition(".")
                if rest and parent in counts:
                    table = f"{parent}[{counts[parent]}].{rest}"
            lines.setdefault(table, number)
        elif key := _KEY.match(line):
            path = _key_path(key[1])
            lines.setdefault(f"{table}.{path}" if table else path, number)
    return lines


class Document:
    """One TOML document, and the faults that have been found in it so far.

    The constructor raises ConfigError immediately if the text is not valid TOML, because nothing else can be checked in
    that case.
    """

    def __init__(self, source: str, file_name: str) -> None:
        self.file_name = file_name
        self._faults: list[tuple[int, str]] = []
        self._faulty: set[str] = set()
        self._tables: list[Table] = []
        self._lines = locate_keys(source)
        try:
            values = tomllib.loads(source)
        except tomllib.TOMLDecodeError as error:
            raise ConfigError(f"{file_name}: not valid TOML: {error}") from None
        self.root = Table(self, "", values)

    def adopt(self, table: "Table") -> None:
        """Register a table, so that `finish` also checks it for unknown keys."""
        self._tables.append(table)

    def fault(self, path: str, message: str) -> None:
        """Record a fault for the key at `path`."""
        self._faulty.add(path)
        line = self._line(path)
        where = f"{self.file_name}:{line}" if line else self.file_name
        self._faults.append((line or 0, f"{where}: {path}: {message}" if path else f"{where}: {message}"))

    def faulty(self, path: str) -> bool:
        """Return whether a fault has been recorded for exactly this path. Faults for keys below this path do not
        count."""
        return path in self._faulty

    def finish(self) -> None:
        """If any faults have been recorded, raise a ConfigError that lists all of them in the order of the file.
        Otherwise, do nothing."""
        for table in self._tables:
            table.report_unknown_keys()
        self._tables.clear()
        if self._faults:
            lines = [message for _, message in sorted(self._faults, key=lambda fault: fault[0])]
            count = "1 fault" if len(lines) == 1 else f"{len(lines)} faults"
            raise ConfigError("\n".join([f"{self.file_name}: {count}", *(f"  {line}" for line in lines)]))

    def _line(self, path: str) -> int | None:
        while path:
            if path in self._lines:
                return self._lines[path]
            path = path[: max(path.rfind("."), path.rfind("["), 0)]
        return None


class Table:
    """One table of a document. A method that reads a key also marks the key as known."""

    def __init__(self, document: Document, path: str, values: dict[str, object]) -> None:
        self.document = document
        self.path = path
        self._values = values
        self._known: list[str] = []
        document.adopt(self)

    def at(self, key: str) -> str:
        """Return the full path of a key."""
        return f"{self.path}.{key}" if self.path else key

    def has(self, key: str) -> bool:
        """Return whether the file contains the key."""
        return key in self._values

    def fault(self, key: str, message: str) -> None:
        """Record a fault for this key."""
        self.document.fault(self.at(key), message)

    def optional(self, key: str, convert: Convert[T], default: T, *, secret: bool = False) -> T:
        """Return the converted value of a key, or `default` if the key is absent.

        With `secret`, fault messages never show the value.
        """
        found = self._take(key)
        if found is _MISSING:
            return default
        return self._convert(self.at(key), found, convert, default, secret)

    def required(self, key: str, convert: Convert[T], stand_in: T, *, secret: bool = False) -> T:
        """Return the converted value of a key. If the key is absent, record a fault and return `stand_in`.

        With `secret`, fault messages never show the value.
        """
        found = self._take(key)
        if found is _MISSING:
            self.needs(key, convert)
            return stand_in
        return self._convert(self.at(key), found, convert, stand_in, secret)

    def list_of(
        self,
        key: str,
        convert: Convert[T],
        *,
        required: bool = False,
        default: tuple[T, ...] = (),
        secret: bool = False,
    ) -> tuple[T, ...]:
        """Return the list under a key, with each item converted. If the key is absent, return `default`. Faults do not
        show the items if they are `secret`.

        With `required`, a fault is recorded if the list is absent or empty.
        """
        found = self._take(key)
        if found is _MISSING:
            if required:
                self.needs(key, convert)
            return default
        if not isinstance(found, list) or (required and found == []):
            what = "an empty list" if found == [] else "***" if secret else shown(cast(object, found))
            self.fault(key, f"found {what}; allowed: a list" + (" of at least one item" if required else ""))
            return ()
        wrong: list[T | None] = [
            self._convert(f"{self.at(key)}[{index}]", item, convert, None, secret=secret)
            for index, item in enumerate(cast(list[object], found))
        ]
        return tuple(item for item in wrong if item is not None)

    def all_of(self, name: Convert[str], convert: Convert[T]) -> dict[str, T]:
        """Return the converted values of a table whose keys the user chooses, in the order of the file. `name` is the
        function that checks these keys."""
        found: dict[str, T] = {}
        for key in self._values:
            self._known.append(key)
            try:
                name(key)
            except ValueError as rule:
                self.document.fault(self.path, f"found the key {shown(key)}; allowed: {rule}")
                continue
            value = self._convert(self.at(f'"{key}"'), self._values[key], convert, None, secret=False)
            if value is not None:
                found[key] = value
        return found

    def needs(self, key: str, convert: Convert[object], reason: str = "") -> None:
        """Record a fault if the key is absent. `reason` says why the key is needed."""
        if key not in self._values:
            try:
                convert(None)
            except ValueError as rule:
                self.fault(key, f"missing{' ' + reason if reason else ''}; allowed: {rule}")

    def table(self, key: str) -> "Table":
        """Return the table under this key, or an empty table if the key is absent."""
        found = self._take(key)
        return self._subtable(key, {} if found is _MISSING else found)

    def tables(self, key: str, required: str = "", *, secret: bool = False) -> list["Table"]:
        """Return the tables of an array of tables. With `required`, record a fault if the array is absent or empty.
        `required` is the text of the fault, which says what is missing. With `secret`, fault messages never show the
        value."""
        found = self._take(key)
        if found is _MISSING or found == []:
            if required:
                self.fault(key, f"missing; {required}")
            return []
        if not isinstance(found, list):
            value = "***" if secret else shown(found)
            self.fault(key, f"found {value}; allowed: tables, each under its own [[{self.at(key)}]]")
            return []
        return [self._subtable(f"{key}[{index}]", item) for index, item in enumerate(cast(list[object], found))]

    def named_tables(self, key: str, required: str) -> dict[str, "Table"]:
        """Return the tables under this key, by name. If there are none, record a fault. `required` is the text of the
        fault, which says what is missing."""
        found = self._take(key)
        if found is _MISSING or found == {}:
            self.document.fault(key, f"missing; {required}")
            return {}
        if not isinstance(found, dict):
            self.fault(key, f"found {shown(found)}; allowed: tables, each as [{key}.NAME]")
            return {}
        return {name: self._subtable(f"{key}.{name}", item) for name, item in cast(dict[str, object], found).items()}

    def report_unknown_keys(self) -> None:
        """Record a fault for each key that was never read."""
        for key in self._values:
            if key not in self._known:
                like = closest_name(key, self._known)
                hint = f'; did you mean "{like}"?' if like else ""
                self.fault(key, f"unknown key{hint} (known here: {', '.join(sorted(self._known))})")

    def _take(self, key: str) -> object:
        self._known.append(key)
        return self._values.get(key, _MISSING)

    def _subtable(self, key: str, found: object) -> "Table":
        if isinstance(found, dict):
            return Table(self.document, self.at(key), cast(dict[str, object], found))
        self.fault(key, f"found {TYPE_NAMES.get(type(found), 'a value')}; allowed: a table")
        return Table(self.document, self.at(key), {})

    def _convert(self, path: str, found: object, convert: Convert[T], stand_in: T, secret: bool) -> T:
        try:
            return convert(found)
        except ValueError as rule:
            self.document.fault(path, f"found {'***' if secret else shown(found)}; allowed: {rule}")
            return stand_in
