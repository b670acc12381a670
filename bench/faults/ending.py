"""The end of a campaign: wait until everything is copied, and check that no status has said so earlier."""

import time
from collections.abc import Callable, Mapping, Sequence

from bench.harness.clusters import Admin
from bench.harness.daemon import Daemon
from mirrord.model.errors import EnvironmentFault
from mirrord.model.status import FlowStatus, LaneStatus

CATCH_UP_S = 300.0
STATUS_AGE_S = 5.0
"""Maximum age of the status on a busy machine."""
_LOOK_S = 0.2


def ends_of(bootstrap: str, topics: Mapping[str, int]) -> dict[tuple[str, int], int]:
    """Return the final ends of the source. Nothing writes there any more."""
    admin = Admin(bootstrap)
    deadline = time.monotonic() + CATCH_UP_S
    while True:
        ends = admin.ends(topics)
        if len(ends) == sum(topics.values()):
            return ends
        if time.monotonic() > deadline:
            raise EnvironmentFault("the source cannot be asked where its partitions end")
        time.sleep(_LOOK_S)


def await_end(
    daemons: Sequence[Daemon], ends: Mapping[tuple[str, int], int], print_line: Callable[[str], None]
) -> FlowStatus:
    """Return the status of the copying daemon once it has nothing left to copy. It must not report that earlier."""
    deadline = time.monotonic() + CATCH_UP_S
    since: float | None = None
    said = ""
    behind: list[LaneStatus] = []
    missing: list[tuple[str, int]] = []
    while True:
        for daemon in daemons:
            _ = daemon.pid
            flow = daemon.flow()
            if flow is None or flow.state != "running":
                continue
            lanes = [lane for lane in flow.lanes if lane.state != "gone"]
            if flow.totals.lag_records == 0 and [lane.state for lane in lanes] == ["copying"] * len(ends):
                wrong = [lane for lane in lanes if (lane.source_offset or 0) < ends[lane.topic, lane.partition]]
                if not wrong:
                    return flow
                since = since or time.monotonic()
                if time.monotonic() > since + STATUS_AGE_S:
                    raise EnvironmentFault(f"the status says that there is no lag; these are behind: {wrong}")
            else:
                since = None
            halted = [lane for lane in flow.lanes if lane.state == "halted"]
            if halted:
                raise EnvironmentFault(f"{halted[0].topic}-{halted[0].partition} is halted: {halted[0].note}")
            behind = [lane for lane in flow.lanes if lane.lag_records != 0 or lane.state != "copying"]
            missing = sorted(ends.keys() - {(lane.topic, lane.partition) for lane in flow.lanes})
            word = f"{flow.totals.lanes}, lag {flow.totals.lag_records}"
            if word != said:
                said = word
                print_line(word)
        if time.monotonic() > deadline:
            raise EnvironmentFault(
                f"not everything is copied after {CATCH_UP_S:g} s; missing: {missing}, behind: {behind}"
            )
        time.sleep(_LOOK_S)
