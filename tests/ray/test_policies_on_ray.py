"""A third-party naming policy: loaded by the command line and by the supervisor on Ray, later wrong for a topic."""

from pathlib import Path

import pytest

from mirrord.lab.copy_checker import TopicPair, compare
from tests.fixtures.daemon import RAY_START_S, Daemon, all_ends, conf, fill, mirrord, unique
from tests.fixtures.lab import LabPair
from tests.fixtures.mirror import create_topic

"""Ray starts within seconds on an idle machine; a busy one may need several attempts."""
POLICY = """
class Naming:
    def __init__(self, source, target, team="core"):
        self._before = f"{team}.{source}."

    def target_topic(self, topic):
        if topic.endswith("nameless"):
            raise LookupError("nobody owns it")
        return self._before + topic

    def source_topic(self, topic):
        return topic.removeprefix(self._before) if topic.startswith(self._before) else None
"""


def test_a_naming_of_ones_own(lab_pair: LabPair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, target = lab_pair.source, lab_pair.target
    module = f"policies_{unique('of').replace('-', '_')}"
    (tmp_path / f"{module}.py").write_text(POLICY)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    topic = create_topic(source, unique("orders"), 2)
    fill(source, topic, 2, 500)
    flow_more = f'naming = "{module}:Naming"\nnaming_settings = {{ team = "billing" }}'
    more = "[ray]\ndashboard = false\n"
    path = conf(
        tmp_path, source, target, f"{topic}.*", flow=unique("own"), engine="ray", more=more, flow_more=flow_more
    )
    path.write_text(f'instance = "{unique("ray")}"\n{path.read_text()}')
    with Daemon(path) as daemon:
        daemon.until(lambda: "daemon_ready" in daemon.output, RAY_START_S)
        daemon.until_copied(all_ends(source, topic))
        nameless = create_topic(source, f"{topic}-nameless", 1)
        daemon.until(lambda: daemon.flow().topics)
        (topic_status,) = daemon.flow().topics
        assert (topic_status.topic, topic_status.target_topic) == (nameless, "")
        assert "raised LookupError: nobody owns it" in topic_status.faults[0]
        fill(source, topic, 2, 500, first=500)
        daemon.until_copied(all_ends(source, topic))
        whole = path.read_text()
        path.write_text(whole.replace(":Naming", ":Nming"))
        refused = mirrord("apply", path)
        assert (refused.returncode, 'did you mean "Naming"?' in refused.stderr) == (2, True)
        assert daemon.flow().totals.lanes == {"copying": 2}
        assert daemon.stop() == 0
    found = compare(source.bootstrap, target.bootstrap, [TopicPair(topic, f"billing.eu.{topic}")], processes=1)
    assert found.is_exact, found.describe()
    assert found.records == 1_000
