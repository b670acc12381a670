"""The version of the installed mirrord."""

from importlib import metadata


def version() -> str:
    """Such as `0.1.0`."""
    return metadata.version("mirrord")
