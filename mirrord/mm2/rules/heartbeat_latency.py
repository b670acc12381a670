"""Measure how long a record takes to be copied, and how far clocks differ.

The latency is that of heartbeats, which a flow copies like any record. A beat holds the time at which it was written.
If this process wrote it, a single clock saw it leave and arrive, so the latency is exact. Otherwise it was written by
some clock close to the source cluster, which is assumed to agree with that cluster's own clock. The difference between
the cluster's clock and ours is then subtracted, and the error of that difference is reported. Without an estimate no
latency is reported.
"""

from collections import OrderedDict, deque

import msgspec

from mirrord.kafka.protocol.mm2_records import Heartbeat
from mirrord.model.names import Alias

KEPT_BEATS = 1_000
"""Maximum number of beats kept for one cluster until they have arrived."""
SAMPLES = 8
FRESH_S = 60.0
"""A latency is no longer shown when its beat is older than this, because it no longer describes the present."""


class ClockSample(msgspec.Struct, frozen=True):
    """How far a cluster's clock is ahead of ours. The true value lies within the error on either side."""

    offset_ms: float
    error_ms: float


def clock_sample(asked_ms: float, reported_ms: int, answered_ms: float) -> ClockSample:
    """Return the sample that one question gives.

    The cluster read its clock at some time between our request and the arrival of its answer. Each of the three times
    is truncated to a millisecond.
    """
    return ClockSample(reported_ms - (asked_ms + answered_ms) / 2, (answered_ms - asked_ms) / 2 + 1)


def apart(one: ClockSample | None, other: ClockSample | None) -> ClockSample | None:
    """Return how far one clock is ahead of another, or None if one of them is not known."""
    if one is None or other is None:
        return None
    return ClockSample(one.offset_ms - other.offset_ms, one.error_ms + other.error_ms)


class ClockEstimate:
    """An estimate of a cluster's clock: the most precise of the last few samples, which is the one answered fastest."""

    def __init__(self) -> None:
        self._samples: deque[ClockSample] = deque(maxlen=SAMPLES)

    def add(self, sample: ClockSample | None) -> None:
        """Add a sample. None means that the clock could not be read, so the oldest sample is dropped."""
        if sample is not None:
            self._samples.append(sample)
        elif self._samples:
            self._samples.popleft()

    @property
    def best(self) -> ClockSample | None:
        """The most precise sample, or None while nothing is known."""
        return min(self._samples, key=lambda sample: sample.error_ms, default=None)


class SentBeats:
    """The beats that this process wrote, on every cluster, each with the monotonic time (s) at which it was sent."""

    def __init__(self) -> None:
        self._sent: dict[Alias, OrderedDict[Heartbeat, float]] = {}

    def note(self, cluster: Alias, beat: Heartbeat, at_s: float) -> None:
        """Record that a beat is sent to a cluster."""
        sent = self._of(cluster)
        sent[beat] = at_s
        while len(sent) > KEPT_BEATS:
            sent.popitem(last=False)

    def forget(self, cluster: Alias, beat: Heartbeat) -> None:
        """Forget a beat that was not written, or whose outcome is unknown."""
        self._of(cluster).pop(beat, None)

    def sent_at(self, cluster: Alias, beat: Heartbeat) -> float | None:
        """Return when the beat was sent, or None if another process wrote it."""
        return self._of(cluster).get(beat)

    def first_after(self, cluster: Alias, at_s: float) -> float | None:
        """Return when the first beat after a given moment was sent."""
        return next((sent for sent in self._of(cluster).values() if sent > at_s), None)

    def _of(self, cluster: Alias) -> OrderedDict[Heartbeat, float]:
        return self._sent.setdefault(cluster, OrderedDict())


class Shown(msgspec.Struct, frozen=True):
    """The latency that beats show at one moment."""

    latency_ms: float | None = None
    error_ms: float | None = None


class BeatLatency:
    """The latency of one flow."""

    def __init__(self, source: Alias, sent: SentBeats, since_s: float) -> None:
        """Start measuring at `since_s` (monotonic): only beats that are sent from then on can be missed."""
        self._source = source
        self._sent = sent
        self._waiting_since_s = since_s
        self._at_s = since_s
        self._shown = Shown()

    def arrived(self, beat: Heartbeat, now_s: float, now_ms: int, source_clock: ClockSample | None) -> None:
        """Record that a beat of the source is in the target log now.

        `now_s` is the time of our monotonic clock, and `now_ms` that of our wall clock. `source_clock` says how far the
        source's clock is ahead of ours.
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
        """Return the latency of the last beat, or the age of our oldest beat still in flight if that is longer."""
        known = self._shown if now_s - self._at_s <= FRESH_S else Shown()
        waiting_s = self._sent.first_after(self._source, self._waiting_since_s)
        if waiting_s is not None and (under_way_ms := (now_s - waiting_s) * 1000) > (known.latency_ms or 0.0):
            return Shown(under_way_ms, 0.0)
        return known
