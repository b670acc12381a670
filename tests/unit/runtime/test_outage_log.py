"""The log lines about a cluster that cannot be reached."""

import time

from structlog.testing import capture_logs

from mirrord.runtime.outage_log import OutageLog
from tests.fixtures.supervision import eventually

BOTH = "cluster_unreachable", "cluster_reachable"


async def test_a_cluster_that_answers_now_and_then_is_one_outage() -> None:

    def ask() -> None:
        outages.succeeded()

    outages = OutageLog(BOTH, 0.05, time.monotonic, ask, cluster="eu")
    with capture_logs() as lines:
        outages.succeeded()
        for number in range(100):
            outages.failed(f"failure {number}")
            outages.succeeded()
        assert [(line["event"], line["error"]) for line in lines] == [("cluster_unreachable", "failure 0")]
        await eventually(lambda: len(lines) > 1)
        outages.failed("again")
        outages.close()
    assert [line["event"] for line in lines] == [*BOTH, "cluster_unreachable"]
    assert {line["cluster"] for line in lines} == {"eu"}


async def test_a_cluster_that_answers_once_and_then_hangs_stays_unreachable() -> None:
    asked: list[str] = []
    outages = OutageLog(BOTH, 0.01, time.monotonic, lambda: asked.append("again"))
    with capture_logs() as lines:
        outages.failed("lost")
        outages.succeeded()
        await eventually(lambda: bool(asked))
        assert [line["event"] for line in lines] == [BOTH[0]], "the request that was sent has no answer yet"
        outages.failed("no answer")
        assert len(lines) == 1
        await eventually(lambda: outages.succeeded() or len(lines) > 1)
    assert [line["event"] for line in lines] == [*BOTH]
