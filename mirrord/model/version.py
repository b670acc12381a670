"""The version of the installed mirrord."""

from functools import cache
from importlib import metadata


@cache
def version() -> str:
    """Return the version of mirrord, such as `0.1.0`."""
    # The version is read only once, because reading takes milliseconds and every status document contains the version.
    return metadata.version("mirrord")
