"""A file of MirrorMaker 2, unchanged, on the Ray that a start brings up."""

from pathlib import Path

from mirrord.lab.checker import TopicPair, compare
from tests.fixtures.daemon import Daemon, all_ends, fill, unique
from tests.fixtures.lab import LabPair
from tests.fixtures.mirror import create_topic

START_S = 150.0
"""Ray starts within seconds on an idle machine; a busy one may need several tries."""


def test_an_unchanged_file_starts_and_copies(lab_pair: LabPair, tmp_path: Path) -> None:
    source, target = lab_pair.source, lab_pair.target
    topic, alias = create_topic(source, unique("orders"), 2), unique("eu")
    fill(source, topic, 2, 1_000)
    path = tmp_path / "mm2.properties"
    path.write_text(
        f"clusters = {alias}, us\n{alias}.bootstrap.servers = {source.bootstrap}\n"
        f"us.bootstrap.servers = {target.bootstrap}\n{alias}->us.enabled = true\n{alias}->us.topics = {topic}\n"
        "replication.factor = 1\ntasks.max = 4\nreplication.policy.separator = __\n"
    )
    environment = {"XDG_STATE_HOME": str(tmp_path)}
    with Daemon(path, "--clusters", "us", environment=environment) as daemon:
        daemon.until(lambda: "daemon_ready" in daemon.output, START_S)
        daemon.until_copied(all_ends(source, topic))
        told = [event["remark"] for event in daemon.events() if event["event"] == "configuration_remark"]
        assert any("tasks.max: has no meaning here" in line for line in told)
        assert daemon.stop() == 0
    found = compare(source.bootstrap, target.bootstrap, [TopicPair(topic, f"{alias}__{topic}")], processes=1)
    assert found.is_exact, found.describe()
    assert found.records == 1_000
