"""A file of MirrorMaker 2: MirrorMaker copies with it for a while, then mirrord continues with the same file."""

from pathlib import Path

from bench.harness.mirror_maker import MirrorMaker, properties
from mirrord.lab.copy_checker import TopicPair, compare
from tests.fixtures.daemon import RAY_START_S, Daemon, all_ends, fill, unique
from tests.fixtures.lab import LabPair
from tests.fixtures.mirror import create_topic
from tests.fixtures.mm2 import await_copied

"""Ray starts within seconds on an idle machine; a busy one may need several attempts."""


def test_an_unchanged_file_of_mirrormaker_continues(lab_pair: LabPair, tmp_path: Path) -> None:
    source, target = lab_pair.source, lab_pair.target
    topic, alias = create_topic(source, unique("orders"), 2), unique("eu")
    pair = TopicPair(topic, f"{alias}__{topic}")
    fill(source, topic, 2, 1_000)
    more = "tasks.max = 4\nreplication.policy.separator = __\n"
    path = properties(tmp_path / "mm2.properties", source, target, topic, alias=alias, more=more)
    with MirrorMaker(path) as maker:
        await_copied(maker, source, target, pair)
        maker.stop()
    fill(source, topic, 2, 1_000, first=1_000)
    environment = {"XDG_STATE_HOME": str(tmp_path)}
    with Daemon(path, "--clusters", "us", environment=environment) as daemon:
        daemon.until(lambda: "daemon_ready" in daemon.output, RAY_START_S)
        daemon.until_copied(all_ends(source, topic))
        remarks = [event["remark"] for event in daemon.events() if event["event"] == "configuration_remark"]
        assert any("tasks.max: has no effect in mirrord" in line for line in remarks)
        assert daemon.stop() == 0
    found = compare(source.bootstrap, target.bootstrap, [pair], processes=1)
    assert found.is_exact, found.describe()
    assert found.records == 2_000
