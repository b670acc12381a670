"""Logs why lanes wait, once for each reason.

Otherwise a status document that no one reads would be the only place that shows it.
"""

from collections.abc import Mapping

import structlog

from mirrord.model.status import WAITING
from mirrord.replication.lane.assignment import ReplicatorReport

SEEN_TIMES = 3
"""Number of consecutive reports after which a reason is logged. One that disappears sooner, such as a moved leader, is
not worth a line.
"""
NAMED = 5
"""Number of lanes that one line names."""

log = structlog.get_logger()


class LaneWaits:
    """The reasons why lanes of one flow wait."""

    def __init__(self, flow: str) -> None:
        self._flow = flow
        self._seen: dict[str, int] = {}

    def see(self, reports: Mapping[str, ReplicatorReport]) -> None:
        """Process the newest reports of all replicators."""
        waiting: dict[str, list[str]] = {}
        for report in reports.values():
            for lane in report.lanes:
                if lane.note and lane.phase in WAITING:
                    waiting.setdefault(lane.note, []).append(f"{lane.source_topic}-{lane.partition}")
        self._seen = {reason: min(self._seen.get(reason, 0) + 1, SEEN_TIMES + 1) for reason in waiting}
        for reason, lanes in waiting.items():
            if self._seen[reason] == SEEN_TIMES:
                log.warning("lanes_wait", flow=self._flow, lanes=sorted(lanes)[:NAMED], count=len(lanes), reason=reason)
