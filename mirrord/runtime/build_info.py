"""Identifies the running program by its version, and by its commit if the commit is known."""

import json
from functools import cache
from importlib import metadata
from pathlib import Path

from mirrord.model.version import version

SHORT = 12
"""Number of characters of a commit id that mirrord shows."""


@cache
def program() -> str:
    """Return the version and the commit of the running program, such as `0.1.0+4f2a81c09d3e`.

    Both are read only once, because the running code does not change when files on disk change.
    """
    known = commit()
    return f"{version()}+{known}" if known else version()


@cache
def commit() -> str:
    """Return the commit of the installation, or of the Git checkout that contains the program. Return an empty string
    if neither is known."""
    document = metadata.distribution("mirrord").read_text("direct_url.json")
    # PEP 610: this file names the origin of an installation that did not come from a package index.
    installed = json.loads(document).get("vcs_info", {}).get("commit_id", "") if document else ""
    return (installed or _checked_out(Path(__file__).parents[2] / ".git"))[:SHORT]


def _checked_out(repository: Path) -> str:
    """Return the commit that HEAD of this Git directory points to (gitrepository-layout(5)), or an empty string."""
    try:
        head = (repository / "HEAD").read_text(encoding="ascii").strip()
        name = head.removeprefix("ref: ")
        if name == head:
            return head
        if (repository / name).exists():
            return (repository / name).read_text(encoding="ascii").strip()
        packed = (repository / "packed-refs").read_text(encoding="ascii").splitlines()
        return next((line.split()[0] for line in packed if line.endswith(f" {name}")), "")
    except (OSError, ValueError, IndexError):
        return ""
