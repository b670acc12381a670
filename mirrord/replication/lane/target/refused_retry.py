"""Sends refused records again, because the configs of the target topic determine which records the topic accepts, and
these configs may change.

The configs of the source topic may have been altered shortly before a record was written. The target topic receives the
change a few seconds later. Therefore, the lane does not decide what to do with a refused record unless the configs of
the target topic were in sync with those of the source topic before the record was sent.

A lane that is halted because of a refused record reads the configs of the target topic from time to time. If the
configs have changed, the lane resumes, no matter who changed them.
"""

from mirrord.kafka.protocol.errors import ErrorCode
from mirrord.kafka.protocol.record_batch import CODEC_MASK, HEADER
from mirrord.replication.lane import quarantine
from mirrord.replication.lane.correlation import answers, ask
from mirrord.replication.lane.halt import halt
from mirrord.replication.lane.phases import Phase
from mirrord.replication.lane.signals import Batch, Effects, Wake
from mirrord.replication.lane.state import Lane, SplitLimit
from mirrord.replication.lane.target.topic_configs import AskConfigs, ConfigsAnswer
from mirrord.replication.lane.transitions import Resume

SPREADING_S = 2.0
"""Maximum time in seconds that a config change stored by the cluster takes to reach the leader of the partition."""
AGAIN_S = 0.5
PAUSE_S = 5.0
LONGEST_PAUSE_S = 60.0
TOO_LARGE = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})
"""Errors for a batch that exceeds `max.message.bytes` or the segment size of the target topic."""
BY_RECORD = frozenset({ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_TIMESTAMP, ErrorCode.INVALID_RECORD})
"""Errors with which a broker may refuse a whole batch because of a single record in it (KIP-467)."""
BY_BATCH = frozenset({ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT})
NOT_BY_SETTINGS = frozenset({ErrorCode.CORRUPT_MESSAGE})


def batch_refused(lane: Lane, error: int, batch: Batch) -> Effects:
    """Handle a batch that the target refuses, now that no batch is in flight."""
    if error not in TOO_LARGE | BY_RECORD | BY_BATCH:
        return halt(
            lane,
            "refused",
            quarantine.refusal_line(error, batch.offset, batch.next_offset),
            batch.offset,
            batch.next_offset,
        )
    if batch.count > 1 and error in TOO_LARGE:
        lane.refusal.largest = min(lane.refusal.largest, (batch.end - batch.start) // 2)
        lane.go(Resume())
        return []
    if batch.count > 1 and error in BY_RECORD:
        lane.refusal.split = SplitLimit(batch.offset, batch.next_offset, batch.count // 2)
        lane.go(Resume())
        return []
    if error == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE and (codec := _codec(batch)):
        lane.refusal.refused_codecs |= {codec}
        lane.go(Resume())
        return []
    if batch.count > 1 and lane.on_reject == "skip":
        lane.refusal.split = SplitLimit(
            batch.offset, batch.next_offset, batch.count // 2
        )  # the batch is parked record by record
        lane.go(Resume())
        return []
    return _ask_configs(lane, error, batch)


def _codec(batch: Batch) -> int:
    return HEADER.unpack_from(batch.buffer, batch.start)[5] & CODEC_MASK


def _ask_configs(lane: Lane, error: int, batch: Batch) -> Effects:
    """Ask for the configs of the target topic, because the target refuses a batch that cannot be split further. When
    this function is called, no batch is in flight."""
    lane.failure = (error, batch)
    if error in NOT_BY_SETTINGS:
        return quarantine.decide(lane, error, batch)
    lane.phase = Phase.SETTLING
    return [AskConfigs(ask(lane), sync=True)]


def configs_answered(lane: Lane, now: float, answer: ConfigsAnswer) -> Effects:
    """Handle the configs of the target topic, which were synced and read after the target had refused a batch."""
    if lane.phase is not Phase.SETTLING or lane.failure is None:
        return []
    error, batch = lane.failure
    is_new = answer.seen not in {"", lane.refusal.configs_seen}
    if is_new:
        lane.refusal.configs_seen, lane.refusal.configs_since = answer.seen, now
    # A halted lane is noticed. It resumes by itself once mirrord may read the configs.
    may_pass = answer.may_pass and (lane.on_reject != "halt" or not (answer.seen or answer.is_denied))
    if is_new or may_pass or (answer.seen and now - lane.refusal.configs_since < SPREADING_S):
        line = quarantine.line_of(error, batch)
        lane.trouble = f"{line}; it is sent again" + (f": {answer.trouble}" if answer.trouble else "")
        lane.go(Resume(lane.limits.denied_s if may_pass else AGAIN_S))
        return []
    if answer.is_denied:
        lane.refusal.configs_seen = ""
    effects = quarantine.decide(lane, error, batch, answer.trouble)
    lane.refusal.config_reads = 0
    return [*effects, _pause(lane, now)] if lane.refusal.parking is None else effects


def _pause(lane: Lane, now: float) -> Wake:
    lane.refusal.configs_pause = ask(lane)
    pause_s = min(PAUSE_S * 2.0 ** min(lane.refusal.config_reads, 8), LONGEST_PAUSE_S)
    lane.refusal.config_reads += 1
    return Wake(lane.refusal.configs_pause, now + pause_s)


def read_configs_after_pause(lane: Lane, now: float) -> Wake:
    """Begin a pause, after which a halted lane reads the configs of the target topic again. The lane is halted because
    it has no permission to read them, and resumes once it can read them."""
    lane.refusal.configs_seen = ""
    return _pause(lane, now)


def read_configs_again(lane: Lane) -> Effects:
    """Read the configs of the target topic again while the lane is halted."""
    lane.refusal.configs_pause = -1
    return [AskConfigs(ask(lane), sync=False)]


def configs_answered_while_halted(lane: Lane, now: float, answer: ConfigsAnswer) -> Effects:
    """Resume if the configs of the target topic have changed."""
    if not answers(lane, answer.question):
        return []
    if answer.seen in {"", lane.refusal.configs_seen}:
        return [_pause(lane, now)]
    lane.refusal.configs_seen, lane.refusal.configs_since = answer.seen, now
    return quarantine.released(lane)
