"""The secrets that this process has read, and how they are masked in messages.

A configuration contains only references to secrets, and log values with the name of a secret are masked. This module is
a second line of defence: it also finds a secret inside a text, for example in the message of an exception that a
library or a policy has raised. It is applied to the messages of errors and to log values, but not to names, such as
that of a topic, which must stay as they are.
"""

import json
from collections.abc import Iterator
from urllib.parse import quote, quote_plus

MASK = "***"
SHORTEST = 6
"""Shorter secrets are not masked inside texts, because they would also be found in unrelated words and numbers."""
_known: dict[str, None] = {}
"""The forms of the secrets that are searched for."""


def remember(secret: str) -> None:
    """Mask this secret from now on."""
    _known.update(dict.fromkeys(_forms(secret)))


def mask(text: str) -> str:
    """Return the text with each known secret replaced by `***`."""
    for form in _known:
        if form in text:
            text = text.replace(form, MASK)
    return text


def _forms(secret: str) -> Iterator[str]:
    """Yield a secret as it appears in texts: unchanged, and as it is escaped in JSON, in Python and in URLs. Each line
    of a secret with several lines, such as a private key, is a secret of its own."""
    for line in {secret, *secret.splitlines()}:
        if len(line) >= SHORTEST and not line.startswith("-----"):
            escaped = (json.dumps(line), json.dumps(line, ensure_ascii=False), repr(line))
            yield from (line, *(text[1:-1] for text in escaped), quote(line), quote(line, ""), quote_plus(line))
