"""Latency from heartbeats, and its basis: whose clock saw what."""

from mirrord.kafka.protocol.mm2_records import Heartbeat
from mirrord.mm2.rules.heartbeat_latency import (
    FRESH_S,
    KEPT_BEATS,
    SAMPLES,
    BeatLatency,
    ClockEstimate,
    ClockSample,
    SentBeats,
    Shown,
    apart,
    clock_sample,
)

BEAT = Heartbeat("us", "eu", 1_000_000)


def test_a_clock_is_known_as_well_as_its_answer_was_fast() -> None:
    assert clock_sample(1_000, 1_500, 1_010) == ClockSample(495, 6)
    estimate = ClockEstimate()
    assert estimate.best is None
    for error in (9.0, 3.0, 7.0):
        estimate.add(ClockSample(error * 10, error))
    assert estimate.best == ClockSample(30, 3)
    for _ in range(SAMPLES):
        estimate.add(ClockSample(1, 8.0))
    assert estimate.best == ClockSample(1, 8), "what is old counts no more"
    for _ in range(SAMPLES):
        estimate.add(None)
    assert estimate.best is None


def test_two_clocks_are_as_far_apart_as_each_is_from_ours() -> None:
    assert apart(ClockSample(30, 2), ClockSample(-10, 3)) == ClockSample(40, 5)
    assert apart(ClockSample(30, 2), None) is None
    assert apart(None, ClockSample(30, 2)) is None


def test_a_beat_of_this_process_is_timed_by_one_clock() -> None:
    sent = SentBeats()
    latency = BeatLatency("eu", sent, 100.0)
    sent.note("eu", BEAT, 100.5)
    latency.arrived(BEAT, 100.75, 9_999_999, ClockSample(5_000, 1))
    assert latency.at(101.0) == Shown(250, 0)


def test_a_beat_of_another_process_is_corrected_by_the_sources_clock() -> None:
    latency = BeatLatency("eu", SentBeats(), 100.0)
    latency.arrived(BEAT, 100.75, 1_000_400, ClockSample(-100, 3))
    assert latency.at(101.0) == Shown(300, 3)
    latency.arrived(BEAT, 101.75, 1_000_000, ClockSample(-100, 3))
    assert latency.at(102.0) == Shown(0, 3), "no record arrives before it was written"


def test_without_the_clock_of_the_source_no_latency_is_reported() -> None:
    latency = BeatLatency("eu", SentBeats(), 100.0)
    latency.arrived(BEAT, 100.75, 1_000_400, None)
    assert latency.at(101.0) == Shown()


def test_what_is_still_under_way_counts_when_it_takes_longer() -> None:
    sent = SentBeats()
    sent.note("eu", Heartbeat("us", "eu", 1), 99.0)  # before the first request
    latency = BeatLatency("eu", sent, 100.0)
    assert latency.at(100.5) == Shown()
    for number in range(4):
        sent.note("eu", Heartbeat("us", "eu", 2 + number), 101.0 + number)
    latency.arrived(Heartbeat("us", "eu", 2), 101.25, 0, None)
    assert latency.at(102.125) == Shown(250, 0)
    assert latency.at(107.0) == Shown(5_000, 0), "the beat of 102.0 has not arrived"
    latency.arrived(Heartbeat("us", "eu", 5), 107.0, 0, None)
    assert latency.at(107.5) == Shown(3_000, 0)


def test_a_beat_that_could_not_be_written_is_not_waited_for() -> None:
    sent = SentBeats()
    latency = BeatLatency("eu", sent, 100.0)
    sent.note("eu", BEAT, 100.5)
    sent.forget("eu", BEAT)
    assert latency.at(200.0) == Shown()


def test_an_old_latency_is_none() -> None:
    latency = BeatLatency("eu", SentBeats(), 100.0)
    latency.arrived(BEAT, 100.0, 1_000_400, ClockSample(0, 3))
    assert latency.at(100.0 + FRESH_S) == Shown(400, 3)
    assert latency.at(101.0 + FRESH_S) == Shown()


def test_beats_of_other_clusters_and_too_many_beats() -> None:
    sent = SentBeats()
    sent.note("us", BEAT, 1.0)
    assert sent.sent_at("eu", BEAT) is None
    for number in range(KEPT_BEATS + 5):
        sent.note("eu", Heartbeat("us", "eu", number), float(number))
    assert sent.sent_at("eu", Heartbeat("us", "eu", 4)) is None
    assert sent.first_after("eu", 0.0) == 5.0
