"""Finds out whether a source batch is a copy, by asking for the lanes in the ledgers of other flows (see
`mirrord.replication.lane.source.loop_detection`). The lane fetches nothing until it has the answer.

In the meantime, the lane sends the batches that it read before the batch in question. It does not keep that batch in
memory, but fetches it again after the answer has arrived.
"""

from mirrord.replication.lane import intake
from mirrord.replication.lane.correlation import ask
from mirrord.replication.lane.phases import Phase
from mirrord.replication.lane.signals import AskOrigins, Effects, OriginsAnswer, Wake
from mirrord.replication.lane.state import Lane


def ask_origin(lane: Lane, now: float) -> Effects:
    """Ask for the origin of the source batch that may be a copy. If the last request was about the same batch, pause
    before asking again. If no batch may be a copy, do nothing."""
    if lane.origin.doubt is None:
        return []
    lane.origin.question = ask(lane)
    if lane.origin.doubt == lane.origin.asked_about:
        if not lane.origin.line:
            offset, producer_id = lane.origin.doubt.offset, lane.origin.doubt.producer_id
            lane.origin.line = (
                f"{lane.source_topic}-{lane.partition}: the batch at source offset {offset} has the producer id "
                f"{producer_id} of a flow into this topic, whose ledger does not yet say that the batch is its copy"
            )
        return [Wake(lane.origin.question, now + lane.limits.retry_s)]
    lane.origin.asked_about = lane.origin.doubt
    return [AskOrigins(lane.origin.question)]


def ask_again(lane: Lane) -> Effects:
    """Ask for the origin of the batch again after the pause that follows an inconclusive answer."""
    if lane.origin.doubt is None:
        return []
    lane.origin.question = ask(lane)
    return [AskOrigins(lane.origin.question)]


def origins_answered(lane: Lane, now: float, signal: OriginsAnswer) -> Effects:
    """Handle the answer to the question whether a source batch is a copy. The answer contains the lanes that write to
    the source partition, according to the ledgers on the source cluster, or the reason why these ledgers cannot be
    read."""
    doubt, origins = lane.origin.doubt, lane.origins
    if doubt is None or origins is None or lane.phase is not Phase.COPYING:
        return []
    if signal.trouble:
        lane.origin.line = f"{lane.source_topic}-{lane.partition}: {signal.trouble}"
        lane.origin.question = ask(lane)
        return [Wake(lane.origin.question, now + lane.limits.retry_s)]
    origins.learn(signal.writers, doubt.producer_id)
    lane.origin.doubt = None
    return intake.want_more(lane)


def forget_answered(lane: Lane) -> None:
    """Forget the batch that the last request was about, if the lane has read past it."""
    if (
        lane.origin.asked_about is not None
        and lane.origin.doubt is None
        and lane.position > lane.origin.asked_about.offset
    ):
        lane.origin.asked_about = None
        lane.origin.line = ""
