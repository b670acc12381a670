"""Translates regular expressions from Java's syntax into Python's.

The expressions match names of topics and groups, so most files use only syntax that both languages share. Other syntax
is translated. Syntax that cannot be translated is refused, so that it is never misinterpreted.
"""

import re

from mirrord.config.regex_cost import TooSlow, check_cost

_CLASSES = {
    "Lower": "a-z",
    "Upper": "A-Z",
    "Alpha": "a-zA-Z",
    "Digit": "0-9",
    "Alnum": "a-zA-Z0-9",
    "XDigit": "0-9a-fA-F",
    "Punct": "!-/:-@\\[-`{-~",
    "Space": "\\s",
    "Blank": " \\t",
    "L": "a-zA-Z",
    "Ll": "a-z",
    "Lu": "A-Z",
    "N": "0-9",
    "Nd": "0-9",
    "IsAlphabetic": "a-zA-Z",
    "IsDigit": "0-9",
}
"""Named character classes such as `Lower` and `IsDigit`, with their equivalents in Python. Some are POSIX classes, and
the others are Unicode classes. The Unicode classes are limited to ASCII, because Kafka allows only ASCII in topic
names."""
_TOKEN = re.compile(
    r"(?P<quote>\\Q(?P<quoted>.*?)(?:\\E|$))"
    r"|(?P<property>\\(?P<sign>[pP])(?:\{(?P<name>\w+)\}|(?P<letter>\w)))"
    r"|\\k<(?P<back>\w+)>"
    r"|(?P<escape>\\.)"
    r"|\(\?<(?P<group>[A-Za-z]\w*)>"
    r"|\(\?(?P<flags>[A-Za-z-]+)\)"
    r"|(?P<brace>\{)"
    r"|(?P<char>.)",
    re.DOTALL,
)
_QUANTIFIER = re.compile(r"\{\d+(,\d*)?\}")
_ESCAPES = {"\\z": "\\Z", "\\h": "[ \\t]", "\\e": "\\x1b"}
_REFUSED = {"\\G", "\\X", "\\R", "\\N", "\\H", "\\V", "\\v", "\\c", "\\E"}


def python_regex(java: str) -> str:
    """Return the equivalent expression in Python's syntax.

    Raises ValueError if there is no equivalent, or if the expression is invalid. The message says what is allowed.
    """
    translated = _Translator(java).run()
    try:
        re.compile(translated)
        check_cost(translated)
    except TooSlow as error:
        raise ValueError(f"a regular expression that is fast for every name ({error})") from None
    except re.error as error:
        raise ValueError(f"a regular expression that Python also supports ({error})") from None
    return translated


class _Translator:
    def __init__(self, java: str) -> None:
        self._java = java
        self._parts: list[str] = []
        self._in_class = False
        self._depth = 0
        self._open_flags = 0

    def run(self) -> str:
        position = 0
        while position < len(self._java):
            match = _TOKEN.match(self._java, position)
            assert match is not None  # noqa: S101 - the last alternative matches any character
            position = match.end()
            self._parts.append(self._translate(match))
        return "".join(self._parts) + ")" * self._open_flags

    def _translate(self, match: re.Match[str]) -> str:
        match match.lastgroup:
            case "quote":
                return re.escape(match["quoted"])
            case "property":
                return self._property(match)
            case "escape":
                return self._escape(match[0])
            case "back":
                return f"(?P={match['back']})"
            case "group" if not self._in_class:
                self._depth += 1
                return f"(?P<{match['group']}>"
            case "flags" if not self._in_class:
                return self._flags(match)
            case "brace" if not self._in_class and not _QUANTIFIER.match(self._java, match.start()):
                raise ValueError('"\\{", or a quantifier such as {2}; the list is split at any comma inside one')
            case "char":
                return self._char(match[0], match.start())
            case _:
                return match[0]

    def _property(self, match: re.Match[str]) -> str:
        name = match["name"] or match["letter"]
        if name not in _CLASSES or (self._in_class and match["sign"] == "P"):
            raise ValueError(f"no {match[0]} here; a class such as [a-z0-9]")
        if self._in_class:
            return _CLASSES[name]
        return f"[{'^' if match['sign'] == 'P' else ''}{_CLASSES[name]}]"

    def _escape(self, escape: str) -> str:
        if escape in _REFUSED or (self._in_class and escape == "\\h"):
            raise ValueError(f"no {escape}, which Python does not support")
        return _ESCAPES.get(escape, escape)

    def _flags(self, match: re.Match[str]) -> str:
        if set(match["flags"]) - set("imsx"):
            raise ValueError(f"no {match[0]}; of the flags, only (?i), (?m), (?s) and (?x)")
        if match.start() == 0:
            return match[0]
        if self._depth:
            raise ValueError(f"no {match[0]} inside a group; (?i:...) around the part to which it applies")
        self._open_flags += 1
        return f"(?{match['flags']}:"

    def _char(self, char: str, position: int) -> str:
        if self._in_class:
            if char == "[" or self._java.startswith("&&", position):
                raise ValueError("no class inside a class; one class such as [a-z0-9]")
            # A closing bracket directly after the opening one is a literal character.
            if char == "]" and self._parts[-1] != "[" and not (self._parts[-1] == "^" and self._parts[-2] == "["):
                self._in_class = False
        elif char == "[":
            self._in_class = True
        else:
            self._depth += {"(": 1, ")": -1}.get(char, 0)
        return char
