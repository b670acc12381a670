"""Parses the value of `sasl.jaas.config`, as Kafka's JaasConfig does: one login module with its options."""

import re

import msgspec

_TOKEN = re.compile(
    r"""\s+|//[^\n]*|/\*.*?\*/|(?P<quoted>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')|(?P<mark>[=;])|(?P<word>[^\s=;"']+)""",
    re.DOTALL,
)
_ESCAPE = re.compile(r"\\([0-3]?[0-7]{1,2}|.)", re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "b": "\b", "a": "\a", "v": "\v"}


class JaasEntry(msgspec.Struct, frozen=True):
    """A login module and its options. The values of the options may be secrets, so they must never be shown."""

    module: str
    options: dict[str, str]

    def __repr__(self) -> str:
        return f"JaasEntry({self.module}, {', '.join(self.options)})"

    __str__ = __repr__


def parse_jaas(text: str) -> JaasEntry:
    """Parse a text of the form `MODULE required NAME="VALUE" ...;`.

    Raises ValueError if the text does not have this form. The message contains no part of the text, because the text
    may contain secrets.
    """
    words = _words(text)
    # With a single login module, the value of the control flag does not matter, but a flag is mandatory.
    if len(words) < 3 or words[-1] != ";" or {words[0], words[1]} & {"=", ";"}:
        raise ValueError('LOGIN-MODULE required NAME="VALUE" ...; with a semicolon at its end')
    options: dict[str, str] = {}
    rest = words[2:-1]
    if len(rest) % 3 or any(sign != "=" for sign in rest[1::3]):
        raise ValueError('options as NAME="VALUE", and one semicolon at the end')
    for name, value in zip(rest[::3], rest[2::3], strict=True):
        options[name] = _unquoted(value)
    return JaasEntry(_unquoted(words[0]), options)


def _words(text: str) -> list[str]:
    words: list[str] = []
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise ValueError("quotes that are closed")
        position = match.end()
        if match.lastgroup:
            words.append(match[0])
    return words


def _unquoted(word: str) -> str:
    if word[:1] not in {'"', "'"}:
        return word
    return _ESCAPE.sub(_escaped, word[1:-1])


def _escaped(match: re.Match[str]) -> str:
    if match[1][0] in "01234567":
        return chr(int(match[1], 8))
    return _ESCAPES.get(match[1], match[1])
