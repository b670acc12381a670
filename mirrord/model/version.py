"""The version of the installed mirrord."""

from functools import cache
from importlib import metadata


@cache
def version() -> str:
    """Such as `0.1.0`."""
    # Read once: it takes milliseconds, and every status tells it.
    return metadata.version("mirrord")
