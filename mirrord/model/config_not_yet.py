"""Settings that are read and checked but that nothing acts on yet.

`NOT_YET` is the whole list. Whoever builds what a setting asks for takes its line away; `start` says in one notice what
is left of it for the flows at hand, so that no key silently does nothing.
"""

from collections.abc import Callable, Sequence

from mirrord.model.config import FlowConfig

NOT_YET: dict[str, Callable[[FlowConfig], bool]] = {}
"""Setting of a flow to whether that flow asks for it."""


def not_yet(flows: Sequence[FlowConfig]) -> str | None:
    """One line that names what these flows ask for and do not get from this version; None when there is nothing."""
    missing = [setting for setting, asked in NOT_YET.items() if any(asked(flow) for flow in flows)]
    return f"read, but not acted on in this version: {', '.join(missing)}" if missing else None
