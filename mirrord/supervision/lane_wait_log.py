"""Logs the reasons why lanes are waiting. Each persistent reason is logged in one line.

Without these lines, only the status would show the reasons.
"""

from collections.abc import Mapping

import structlog

from mirrord.model.status import WAITING
from mirrord.replication.lane.assignment import ReplicatorReport

SEEN_TIMES = 3
"""Number of consecutive polls of the replicators after which a reason is logged. A reason that disappears sooner, such
as a leader change, is not logged."""
NAMED = 5
"""Maximum number of lanes that a log line names."""

log = structlog.get_logger()


class LaneWaits:
    """Tracks and logs the reasons why lanes of one flow are waiting."""

    def __init__(self, flow: str) -> None:
        self._flow = flow
        self._seen: dict[str, int] = {}

    def see(self, reports: Mapping[str, ReplicatorReport]) -> None:
        """Count the consecutive reports in which each reason occurs, and log the reasons that have persisted long
        enough."""
        waiting: dict[str, list[str]] = {}
        for report in reports.values():
            for lane in report.lanes:
                if lane.note and lane.phase in WAITING:
                    waiting.setdefault(lane.note, []).append(f"{lane.source_topic}-{lane.partition}")
        self._seen = {reason: min(self._seen.get(reason, 0) + 1, SEEN_TIMES + 1) for reason in waiting}
        for reason, lanes in waiting.items():
            if self._seen[reason] == SEEN_TIMES:
                log.warning("lanes_wait", flow=self._flow, lanes=sorted(lanes)[:NAMED], count=len(lanes), reason=reason)
