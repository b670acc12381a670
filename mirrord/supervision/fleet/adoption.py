"""Finds the replicators that an earlier process of this daemon left running, and determines which lanes each of them
hosts and whether it is kept.

Each replicator reports its own lanes. If a replicator does not answer, it is assumed to host the lanes that the ledger
records for it. Like every replicator that does not answer, it is killed after a while.
"""

from typing import NamedTuple

import msgspec
import structlog

from mirrord.config.changes import restarts
from mirrord.ledger.state import FlowState
from mirrord.model.names import LaneId
from mirrord.replication.lane.assignment import FlowSetup, Greeting, ReplicatorReport
from mirrord.runtime.build_info import program
from mirrord.supervision.fleet.engine import Engine, ReplicatorUnsure
from mirrord.supervision.fleet.member import Member, lanes_by_ledger, slot_of

log = structlog.get_logger()


class Greeted(NamedTuple):
    """The report of a replicator that an earlier process left running."""

    lanes: frozenset[LaneId]
    leaving: frozenset[LaneId]
    """The lanes among `lanes` that the replicator is draining or has already drained."""
    fits: bool
    """Whether the replicator is running this version of mirrord with this configuration."""


async def greet(member: Member, setup: FlowSetup, state: FlowState) -> Greeted:
    """Make a replicator take its commands only from this process, and return its report. Raises ReplicatorDead or
    ReplicatorUnsure."""
    assert member.handle is not None  # noqa: S101 -- `Fleet` has attached to it
    answer = await member.handle.greet()
    member.greeted = True
    try:
        member.report = report = msgspec.msgpack.decode(answer.report, type=ReplicatorReport)
    except (ValueError, RecursionError):
        report = None
    if answer.program != program():
        log.info("replicator_of_another_program", replicator=member.name, program=answer.program)
        by_ledger = lanes_by_ledger(state, member.name)
        known = by_ledger if report is None else {lane.lane for lane in report.lanes if lane.phase != "gone"}
        return Greeted(frozenset(known), frozenset(), fits=False)
    assert report is not None  # noqa: S101 -- the same program sent it
    hosted = {lane.lane: lane.phase for lane in report.lanes if lane.phase != "gone"}
    leaving = frozenset(lane for lane, phase in hosted.items() if phase in {"draining", "drained"})
    return Greeted(frozenset(hosted), leaving, serves_as(answer, setup))


def serves_as(answer: Greeting, setup: FlowSetup) -> bool:
    """Return whether a running replicator can be kept. Its setup must be the same as that of a replicator that would be
    started now, except for flow settings that lanes do not use."""
    known = msgspec.msgpack.decode(answer.setup, type=FlowSetup)
    return msgspec.structs.replace(known, flow=setup.flow) == setup and not restarts(known.flow, setup.flow)


async def left_running(engine: Engine, prefix: str) -> list[Member]:
    """Return the replicators of a flow that an earlier process of this daemon started and that are still running."""
    found = [
        Member(name, slot, greeted=False) for name in await engine.found(prefix) if (slot := slot_of(name)) is not None
    ]
    return sorted(found, key=lambda member: member.name)


async def end_all(engine: Engine, prefix: str) -> None:
    """Terminate a flow's replicators and group followers that are still running although their daemon has died. They
    are no longer allowed to write, because this daemon holds the lease."""
    for name in await engine.found(prefix):
        log.info("leftover_ended", name=name)
        try:
            await engine.end(name)
        except ReplicatorUnsure as fault:
            log.warning("leftover_not_ended", name=name, reason=str(fault))
