"""Which mirrord this is: its version, and the commit if that can be told."""

import json
from functools import cache
from importlib import metadata
from pathlib import Path

from mirrord.model.version import version

SHORT = 12
"""Characters of a commit."""


@cache
def program() -> str:
    """Such as `0.1.0+4f2a81c09d3e`. Read once: what runs does not change when files do."""
    known = commit()
    return f"{version()}+{known}" if known else version()


@cache
def commit() -> str:
    """The commit that was installed, or that stands in the checkout it runs from; empty when neither can be told."""
    told = metadata.distribution("mirrord").read_text("direct_url.json")
    # PEP 610: where an installation came from that was not an index.
    installed = json.loads(told).get("vcs_info", {}).get("commit_id", "") if told else ""
    return (installed or _checked_out(Path(__file__).parents[2] / ".git"))[:SHORT]


def _checked_out(repository: Path) -> str:
    """What HEAD names (gitrepository-layout(5))."""
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
