"""Measures how long it takes to copy a record, and how much the clocks of two clusters differ.

The latency is measured with heartbeats, which a flow copies like all other records. A heartbeat contains the time at
which it was written. If this process wrote the heartbeat, the latency is exact, because the same clock measured the
departure and the arrival.

If another process wrote the heartbeat, that process's clock is assumed to agree with the source cluster's clock. The
latency is corrected by the difference between the source cluster's clock and this machine's clock. The maximum error of
that difference is reported with the latency. If the difference is unknown, no latency is reported.
"""

from collections import OrderedDict, deque

import msgspec

from mirrord.kafka.protocol.mm2_records import Heartbeat
from mirrord.model.names import Alias

KEPT_BEATS = 1_000
"""Maximum number of sent heartbeats that are kept in memory for each cluster."""
SAMPLES = 8
FRESH_S = 60.0
"""A latency is reported for at most this number of seconds after the arrival of its heartbeat."""


class ClockSample(msgspec.Struct, frozen=True):
    """How far one clock is ahead of another clock. The true value is between `offset_ms - error_ms` and `offset_ms +
    error_ms`."""

    offset_ms: float
    error_ms: float


def clock_sample(asked_ms: float, reported_ms: int, answered_ms: float) -> ClockSample:
    """Return how far a cluster's clock is ahead of this machine's clock, according to one request for the cluster's
    time.

    The cluster read `reported_ms` from its clock at some moment between `asked_ms`, when the request was sent, and
    `answered_ms`, when the response arrived. All three times are truncated to whole milliseconds. `error_ms` in the
    result takes this into account.
    """
    return ClockSample(reported_ms - (asked_ms + answered_ms) / 2, (answered_ms - asked_ms) / 2 + 1)


def apart(one: ClockSample | None, other: ClockSample | None) -> ClockSample | None:
    """Return how far the clock `one` is ahead of the clock `other`, or None if either is unknown."""
    if one is None or other is None:
        return None
    return ClockSample(one.offset_ms - other.offset_ms, one.error_ms + other.error_ms)


class ClockEstimate:
    """Keeps the latest few samples of a cluster's clock. The most precise sample is the one with the fastest
    response."""

    def __init__(self) -> None:
        self._samples: deque[ClockSample] = deque(maxlen=SAMPLES)

    def add(self, sample: ClockSample | None) -> None:
        """Add a sample. None means that the clock could not be read. In that case, the oldest sample is dropped."""
        if sample is not None:
            self._samples.append(sample)
        elif self._samples:
            self._samples.popleft()

    @property
    def best(self) -> ClockSample | None:
        """The most precise sample, or None if there is no sample."""
        return min(self._samples, key=lambda sample: sample.error_ms, default=None)


class SentBeats:
    """The heartbeats that this process has written to each cluster, each with the monotonic time in seconds at which
    this process sent it."""

    def __init__(self) -> None:
        self._sent: dict[Alias, OrderedDict[Heartbeat, float]] = {}

    def note(self, cluster: Alias, beat: Heartbeat, at_s: float) -> None:
        """Record that a heartbeat is being sent to a cluster at this monotonic time."""
        sent = self._of(cluster)
        sent[beat] = at_s
        while len(sent) > KEPT_BEATS:
            sent.popitem(last=False)

    def forget(self, cluster: Alias, beat: Heartbeat) -> None:
        """Forget a heartbeat after an error while it was being written. The cluster may have appended it
        nevertheless."""
        self._of(cluster).pop(beat, None)

    def sent_at(self, cluster: Alias, beat: Heartbeat) -> float | None:
        """Return the monotonic time at which the heartbeat was sent, or None if another process sent it."""
        return self._of(cluster).get(beat)

    def first_after(self, cluster: Alias, at_s: float) -> float | None:
        """Return the monotonic time at which the first heartbeat after `at_s` was sent to the cluster. Return None if
        no heartbeat was sent after `at_s`."""
        return next((sent for sent in self._of(cluster).values() if sent > at_s), None)

    def _of(self, cluster: Alias) -> OrderedDict[Heartbeat, float]:
        return self._sent.setdefault(cluster, OrderedDict())


class Shown(msgspec.Struct, frozen=True):
    """A flow's latency at one moment, and the maximum error of the latency. Both are None if the latency is unknown."""

    latency_ms: float | None = None
    error_ms: float | None = None


class BeatLatency:
    """Measures the latency of one flow from the heartbeats that arrive in its target log."""

    def __init__(self, source: Alias, sent: SentBeats, since_s: float) -> None:
        """`since_s` is the monotonic time at which the measurement begins. Heartbeats that were sent earlier are not
        expected to arrive."""
        self._source = source
        self._sent = sent
        self._waiting_since_s = since_s
        self._at_s = since_s
        self._shown = Shown()

    def arrived(self, beat: Heartbeat, now_s: float, now_ms: int, source_clock: ClockSample | None) -> None:
        """Record that a heartbeat from the source has arrived in the target log.

        `now_s` is the current time of this machine's monotonic clock, and `now_ms` is the current time of its wall
        clock. `source_clock` says how far the source's clock is ahead of this machine's wall clock.
        """
        self._at_s = now_s
        sent_s = self._sent.sent_at(self._source, beat)
        if sent_s is not None:
            self._waiting_since_s = max(sent_s, self._waiting_since_s)
            self._shown = Shown((now_s - sent_s) * 1000, 0.0)
        elif source_clock is not None:
            wrote_ms = beat.timestamp_ms - source_clock.offset_ms
            self._shown = Shown(max(now_ms - wrote_ms, 0.0), source_clock.error_ms)
        else:
            self._shown = Shown()

    def at(self, now_s: float) -> Shown:
        """Return the latency of the latest heartbeat to arrive. If a heartbeat from this process has already been in
        transit for longer than that, return the time since that heartbeat was sent."""
        known = self._shown if now_s - self._at_s <= FRESH_S else Shown()
        waiting_s = self._sent.first_after(self._source, self._waiting_since_s)
        if waiting_s is not None and (under_way_ms := (now_s - waiting_s) * 1000) > (known.latency_ms or 0.0):
            return Shown(under_way_ms, 0.0)
        return known
