"""How long a record is under way, by heartbeats that a flow carries like any record, and how far clocks are apart.

A beat holds the time at which it was written. When this process wrote it, one clock saw it go and come, and the latency
is exact. Else it was written by a clock somewhere beside the source cluster, which is taken to be right by that
cluster's own: the difference between that one and ours is then taken off, and its error is told. Without an estimate
nothing is told.
"""

from collections import OrderedDict, deque

import msgspec

from mirrord.kafka.protocol.mm2_records import Heartbeat
from mirrord.model.names import Alias

KEPT_BEATS = 1_000
"""Of one cluster, until they have arrived."""
SAMPLES = 8
FRESH_S = 60.0
"""A latency whose beat is older than that tells nothing of now."""


class ClockSample(msgspec.Struct, frozen=True):
    """How far a cluster's clock is ahead of ours; the truth lies within the error on either side."""

    offset_ms: float
    error_ms: float


def clock_sample(asked_ms: float, told_ms: int, answered_ms: float) -> ClockSample:
    """From one question: the cluster looked at its clock sometime between our asking and its answer's coming in.

    Each of the three times is cut off to a millisecond.
    """
    return ClockSample(told_ms - (asked_ms + answered_ms) / 2, (answered_ms - asked_ms) / 2 + 1)


def apart(one: ClockSample | None, other: ClockSample | None) -> ClockSample | None:
    """How far one clock is ahead of another; None where one is not known."""
    if one is None or other is None:
        return None
    return ClockSample(one.offset_ms - other.offset_ms, one.error_ms + other.error_ms)


class ClockEstimate:
    """A cluster's clock, by the surest of the last few samples: the one whose answer came fastest."""

    def __init__(self) -> None:
        self._samples: deque[ClockSample] = deque(maxlen=SAMPLES)

    def add(self, sample: ClockSample | None) -> None:
        """Another sample; None: the clock could not be seen, and what is known grows old."""
        if sample is not None:
            self._samples.append(sample)
        elif self._samples:
            self._samples.popleft()

    @property
    def best(self) -> ClockSample | None:
        """None as long as nothing is known."""
        return min(self._samples, key=lambda sample: sample.error_ms, default=None)


class SentBeats:
    """The beats that this process wrote, on every cluster, with the monotonic time (s) at which each went out."""

    def __init__(self) -> None:
        self._sent: dict[Alias, OrderedDict[Heartbeat, float]] = {}

    def note(self, cluster: Alias, beat: Heartbeat, at_s: float) -> None:
        """A beat goes out to a cluster."""
        sent = self._of(cluster)
        sent[beat] = at_s
        while len(sent) > KEPT_BEATS:
            sent.popitem(last=False)

    def forget(self, cluster: Alias, beat: Heartbeat) -> None:
        """It could not be written, or nobody knows."""
        self._of(cluster).pop(beat, None)

    def sent_at(self, cluster: Alias, beat: Heartbeat) -> float | None:
        """When it went out; None: another process wrote it."""
        return self._of(cluster).get(beat)

    def first_after(self, cluster: Alias, at_s: float) -> float | None:
        """When the first beat after a moment went out."""
        return next((sent for sent in self._of(cluster).values() if sent > at_s), None)

    def _of(self, cluster: Alias) -> OrderedDict[Heartbeat, float]:
        return self._sent.setdefault(cluster, OrderedDict())


class Shown(msgspec.Struct, frozen=True):
    """What beats tell at one moment."""

    latency_ms: float | None = None
    error_ms: float | None = None


class BeatLatency:
    """The latency of one flow."""

    def __init__(self, source: Alias, sent: SentBeats, since_s: float) -> None:
        """`since_s` (monotonic): only beats that go out from then on can be missed."""
        self._source = source
        self._sent = sent
        self._waiting_since_s = since_s
        self._at_s = since_s
        self._shown = Shown()

    def arrived(self, beat: Heartbeat, now_s: float, now_ms: int, source_clock: ClockSample | None) -> None:
        """A beat of the source stands at the target now, by our monotonic clock (s) and by our clock on the wall (ms).

        `source_clock` is how far the source's clock is ahead of ours.
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
        """The latency of the last beat, or how long one of ours is under way by now when that is longer."""
        known = self._shown if now_s - self._at_s <= FRESH_S else Shown()
        waiting_s = self._sent.first_after(self._source, self._waiting_since_s)
        if waiting_s is not None and (under_way_ms := (now_s - waiting_s) * 1000) > (known.latency_ms or 0.0):
            return Shown(under_way_ms, 0.0)
        return known
