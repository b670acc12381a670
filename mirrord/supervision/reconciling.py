"""Keeps the replicators of a flow in step with its desired lanes, and halts the lanes that end their replicators again
and again (`mirrord.supervision.rules.suspect_lanes`)."""

import structlog

from mirrord.ledger.facts.base import Origin
from mirrord.ledger.facts.orders import CopyingResumed
from mirrord.ledger.standing_orders import POLICY
from mirrord.ledger.store.fact_recorder import Recorder
from mirrord.runtime.wait import wait_for
from mirrord.supervision.fleet.fleet import Fleet

STEP_S = 1.0
"""Maximum interval between comparisons of hosted and desired lanes. A change in either triggers one immediately."""

log = structlog.get_logger()


async def reconcile_for_ever(flow: str, fleet: Fleet, recorder: Recorder, *, is_new: bool, at_ms: int) -> None:
    """Carry out the steps that lead to the desired lanes. `is_new` says that the daemon has started and has not taken
    over any replicators: lanes that an earlier daemon has halted because of the deaths of their replicators then get
    another try, like all other halted lanes. `at_ms` is the wall-clock time.

    A fact that cannot be recorded is written again with the next step.
    """
    halted = [each for each in recorder.state.orders.paused.values() if is_new and each.origin.by == POLICY]
    for pause in halted:
        log.info("lane_tried_again", flow=flow, lane=f"{pause.topic}-{pause.partition}", reason=pause.origin.reason)
        await recorder.write([CopyingResumed(pause.topic, pause.partition, Origin(POLICY, "restart", at_ms))])
    while True:
        fleet.changed.clear()
        fleet.step()
        for pause in fleet.pauses():
            log.error("lane_halted", flow=flow, lane=f"{pause.topic}-{pause.partition}", reason=pause.origin.reason)
            await recorder.write_now(pause)
        await wait_for(fleet.changed, STEP_S)
