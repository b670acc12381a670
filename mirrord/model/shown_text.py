"""Makes texts from brokers, clients and records harmless before they are shown, logged or recorded."""

LONGEST_MESSAGE = 500
"""Maximum length of a message from a broker, in letters."""


def printable(text: str, longest: int) -> str:
    """Return a text from outside so that it can be shown: in one line, without control characters, and not longer than
    this."""
    return "".join(letter if letter.isprintable() else "?" for letter in text[:longest])
