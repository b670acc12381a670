"""The secrets that this process has read, and how they are masked in messages.

A configuration contains only references to secrets, and log values with the name of a secret are masked. This module is
a second line of defence: it also finds a secret inside a text, for example in the message of an exception that a
library or a policy has raised. It is applied to the messages of errors and to log values, but not to names. The name of
a topic, for example, must stay as it is.
"""

import json
import re
from collections.abc import Iterator
from urllib.parse import quote, quote_plus

MASK = "***"
SHORTEST = 6
"""Shorter secrets are not masked inside texts, because they would also be found in unrelated words and numbers."""
MOST_FORMS = 1_000
"""Maximum number of texts that are searched for. Tokens are replaced again and again, so the oldest are dropped."""
_CERTIFICATE = re.compile(r"-----BEGIN ([A-Z0-9 ]*CERTIFICATE)-----.*?-----END \1-----", re.DOTALL)
_known: dict[str, None] = {}
"""The forms of the secrets, the oldest first."""


def remember(secret: str) -> None:
    """Mask this secret from now on. Certificates in it are public, and are not masked: a file with authorities has
    thousands of lines."""
    for form in _forms(_CERTIFICATE.sub("", secret)):
        _known.pop(form, None)
        _known[form] = None
    while len(_known) > MOST_FORMS:
        del _known[next(iter(_known))]


def mask(text: str) -> str:
    """Return the text with each known secret replaced by `***`."""
    found = [form for form in _known if form in text]
    # A secret may be the beginning of a longer one, whose rest must not stay.
    for form in sorted(found, key=len, reverse=True):
        text = text.replace(form, MASK)
    return text


def _forms(secret: str) -> Iterator[str]:
    """Yield a secret as it appears in texts: unchanged, and as it is escaped in JSON, in Python and in URLs. Each line
    of a secret with several lines, such as a private key, is a secret, too."""
    for line in dict.fromkeys((secret, *secret.splitlines())):
        if len(line.strip()) >= SHORTEST and not line.startswith("-----"):
            escaped = (json.dumps(line), json.dumps(line, ensure_ascii=False), repr(line))
            yield from (line, *(text[1:-1] for text in escaped), quote(line), quote(line, ""), quote_plus(line))
