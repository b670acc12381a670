"""Reads records that a lane has requested. If the lane is copying, a failed read is retried, because the lane would not
request the records again.

A lane that is copying needs these records to compare its copies with the source. Until they can be read, the lane's
resume position does not advance. Therefore, a persistent failure is reported.
"""

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from mirrord.kafka.client.range_reader import ReadFailed
from mirrord.kafka.client.reconnecting_link import Backoff
from mirrord.kafka.protocol.errors import ErrorCode
from mirrord.replication.host.hosted_lane import HostedLane
from mirrord.replication.lane.lane_report import resume_position
from mirrord.replication.lane.phases import Phase
from mirrord.replication.lane.signals import Input
from mirrord.replication.lane.state import Lane

REPORT_AFTER_S = 10.0
"""A failure is reported only if it persists for this many seconds. A leader change does not take that long."""

log = structlog.get_logger()


async def read_and_tell(
    hosted: HostedLane, question: int, read: Callable[[], Awaitable[Input]], failed: Callable[[int], Input]
) -> None:
    """Call `read`, and pass its result to the lane. If the read fails, call `read` again after a pause (see
    `is_repeated`), or pass the lane the signal that `failed` creates from the error code."""
    backoff, began = Backoff(), asyncio.get_running_loop().time()
    while True:
        try:
            result = await read()
        except ReadFailed as failure:
            if is_repeated(hosted.lane, question, failure.error):
                if asyncio.get_running_loop().time() - began >= REPORT_AFTER_S:
                    _report(hosted, failure)
                await asyncio.sleep(backoff.next_s())
                continue
            result = failed(failure.error)
        if hosted.unread_note:
            hosted.unread_note = ""
            log.info("comparison_ended", lane=hosted.lane.id)
        hosted.tell(result)
        return


def is_repeated(lane: Lane, question: int, error: int) -> bool:
    """Return whether records that a lane has requested are read again after this error."""
    copies = question in lane.questions and lane.phase is Phase.COPYING and not lane.confirming
    return copies and error != ErrorCode.OFFSET_OUT_OF_RANGE


def _report(hosted: HostedLane, failure: ReadFailed) -> None:
    ordinal = resume_position(hosted.lane).ordinal
    error = ErrorCode.name_of(failure.error)
    if not hosted.unread_note:
        log.error("comparison_not_readable", lane=hosted.lane.id, error=error, ordinal=ordinal)
    hosted.unread_note = (
        f"records from ordinal {ordinal} on cannot be read for their comparison with the source ({error}): a restart "
        "would begin there"
    )
