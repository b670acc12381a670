"""Parses Java properties files exactly as java.util.Properties does.

A logical line consists of a key, a separator (`=`, `:` or blanks) and a value. If a line ends in an odd number of
backslashes, the logical line continues on the next line, and the leading blanks of that line are dropped. `#` and `!`
begin a comment line. This module does not interpret the values.
"""

import re
from collections.abc import Iterator

import msgspec

from mirrord.model.errors import ConfigError

_BLANKS = " \t\f"
_ESCAPES = {"t": "\t", "r": "\r", "n": "\n", "f": "\f"}
_COMMA = re.compile(r"\s*,\s*")


class Property(msgspec.Struct, frozen=True):
    """One property of a file. `line` is the number of the first line of the property, counted from 1."""

    key: str
    value: str
    line: int


def parse(text: str, file_name: str) -> tuple[Property, ...]:
    r"""Return every property, in the order of the file. A key that occurs several times is returned once for each
    occurrence; its last value applies.

    Raises ConfigError for a malformed `\uXXXX`, which is the only input that Java refuses.
    """
    entries: list[Property] = []
    for line, number in _logical_lines(text):
        key, value = _split(line)
        try:
            entries.append(Property(_unescape(key), _unescape(value), number))
        except ValueError as error:
            raise ConfigError(f"{file_name}:{number}: {error}") from None
    return tuple(entries)


def decode(data: bytes) -> str:
    """Decode the contents of a properties file as UTF-8. If they are not valid UTF-8, decode them as ISO-8859-1, the
    encoding that Java uses for every properties file."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return data.decode("iso-8859-1")


def split_list(value: str) -> tuple[str, ...]:
    """Return the items of a comma-separated list. Blanks around an item are removed. Empty items are omitted."""
    return tuple(item for item in _COMMA.split(value.strip()) if item)


def _logical_lines(text: str) -> Iterator[tuple[str, int]]:
    """Yield each logical line with the number of the line on which it begins."""
    naturals = re.split(r"\r\n|\r|\n", text)
    if naturals[-1] == "" and not text.endswith("\r\n"):
        del naturals[-1]
    buffer = ""
    begun = 0
    open_end = False
    for number, natural in enumerate(naturals, start=1):
        stripped = natural.lstrip(_BLANKS)
        # After a lone backslash, the logical line is still empty, so comments and empty lines are still recognized.
        if not buffer and (not stripped or stripped[0] in "#!"):
            open_end = False
            continue
        begun = begun if buffer else number
        open_end = _goes_on(stripped)
        if open_end:
            buffer += stripped[:-1]
        else:
            yield buffer + stripped, begun
            buffer = ""
    # Java treats even a lone backslash at the end of the file as a property, with an empty key and an empty value.
    if buffer or open_end:
        yield buffer, begun


def _goes_on(line: str) -> bool:
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _split(line: str) -> tuple[str, str]:
    end = 0
    while end < len(line) and line[end] not in _BLANKS + "=:":
        end += 2 if line[end] == "\\" else 1
    end = min(end, len(line))
    rest = line[end:].lstrip(_BLANKS)
    if rest[:1] in {"=", ":"}:
        rest = rest[1:].lstrip(_BLANKS)
    return line[:end], rest


def _unescape(raw: str) -> str:
    if "\\" not in raw:
        return raw
    parts: list[str] = []
    position = 0
    while position < len(raw):
        char = raw[position]
        position += 1
        if char != "\\":
            parts.append(char)
            continue
        escaped = raw[position : position + 1]
        position += 1
        if escaped == "u":
            digits = raw[position : position + 4]
            if not re.fullmatch(r"[0-9A-Fa-f]{4}", digits):
                raise ValueError(f"\\u{digits} is not a character; allowed: \\u and four hexadecimal digits")
            parts.append(chr(int(digits, 16)))
            position += 4
        else:
            parts.append(_ESCAPES.get(escaped, escaped))
    # Java's characters are UTF-16 units, so two escapes may form one character.
    return "".join(parts).encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
