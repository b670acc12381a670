"""The load of lanes, as replicators report it."""

from mirrord.model.names import LaneId
from mirrord.replication.lane.assignment import LaneReport, ReplicatorReport
from mirrord.supervision.fleet.lane_loads import BASE_BYTES_PER_S, HALF_LIFE_S, PAUSE_S, Loads
from mirrord.supervision.rules.placement import EQUAL

LANE = LaneId("lane")


def report(name: str, copied_bytes: int) -> ReplicatorReport:
    lane = LaneReport(
        lane=LANE,
        source_topic="t",
        target_topic="eu.t",
        partition=0,
        phase="copying",
        ordinal=0,
        source_offset=0,
        source_end=0,
        target_offset=0,
        protected=True,
        last_record_ms=0,
        raw_batches=0,
        rebuilt={},
        copied_records=0,
        copied_bytes=copied_bytes,
        in_flight_bytes=0,
        note="",
    )
    return ReplicatorReport(
        name=name,
        pid=1,
        host="h",
        loop_age_ms=0,
        cpu_seconds=0,
        rss_bytes=0,
        lanes=(lane,),
        source_error="",
        target_error="",
        lease_valid_s=1,
        lost=False,
    )


def test_a_rate_follows_what_is_copied_and_outlives_a_move() -> None:
    loads = Loads()
    assert loads.weights.of(LANE) == BASE_BYTES_PER_S
    loads.note(report("one", 0), 0.0)
    loads.note(report("one", 1_000_000), 1.0)
    assert loads.weights.of(LANE) == BASE_BYTES_PER_S + 1_000_000
    # At its new host the count begins again; that is no rate.
    loads.note(report("other", 0), 2.0)
    assert loads.weights.of(LANE) == BASE_BYTES_PER_S + 1_000_000
    loads.note(report("other", 0), 2.0 + HALF_LIFE_S)
    assert round(loads.weights.of(LANE)) == BASE_BYTES_PER_S + 500_000
    loads.keep([])
    assert loads.weights.of(LANE) == BASE_BYTES_PER_S


def test_by_number_all_weigh_the_same() -> None:
    loads = Loads()
    loads.by_bytes = False
    loads.note(report("one", 0), 0.0)
    loads.note(report("one", 1_000_000), 1.0)
    assert loads.weights == EQUAL
    loads.evened_out(1.0)
    assert loads.may_even_out(1.0)


def test_there_is_a_pause_between_two_rounds() -> None:
    loads = Loads()
    assert loads.may_even_out(1.0)
    loads.evened_out(1.0)
    assert not loads.may_even_out(PAUSE_S)
    assert loads.may_even_out(1.0 + PAUSE_S)
