"""A broker in ZooKeeper mode with an old inter.broker.protocol.version, whose topics have no topic ids: every command
that would copy refuses it in one line, and changes nothing."""

import json
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic

from mirrord.lab.cluster import Cluster
from tests.fixtures.daemon import conf, mirrord, unique
from tests.fixtures.lab import LabPair
from tests.fixtures.zookeeper import zookeeper_broker


def topics_at(bootstrap: str) -> set[str]:
    return set(AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=30).topics)


def conf_with(folder: Path, pair: LabPair, replaced: Cluster, bootstrap: str) -> Path:
    path = conf(folder, pair.source, pair.target, "a|b", flow=unique("ids"))
    path.write_text(path.read_text().replace(replaced.bootstrap, bootstrap))
    return path


def test_a_cluster_without_topic_ids_is_refused(lab_pair: LabPair, tmp_path: Path) -> None:
    with zookeeper_broker(tmp_path, {"inter.broker.protocol.version": "2.7"}) as bootstrap:
        admin = AdminClient({"bootstrap.servers": bootstrap})
        created = admin.create_topics([NewTopic(name, 1, 1) for name in ("a", "b")])
        for future in created.values():
            future.result(30)
        before = topics_at(bootstrap), topics_at(lab_pair.source.bootstrap), topics_at(lab_pair.target.bootstrap)
        for replaced, alias in ((lab_pair.source, "eu"), (lab_pair.target, "us")):
            path = conf_with(tmp_path, lab_pair, replaced, bootstrap)
            line = f"cluster {alias} (id "
            for verb in ("start", "plan", "topics"):
                answer = mirrord(verb, path)
                assert answer.returncode == 1, answer.stdout + answer.stderr
                assert line in answer.stderr
                assert "its topics have no topic id (a, b)" in answer.stderr
                assert answer.stderr.count("\n") == 1, answer.stderr
            checked = mirrord("check", path, "--json")
            assert checked.returncode == 1
            (finding,) = [each for each in json.loads(checked.stdout)["findings"] if each["severity"] == "error"]
            assert finding["what"].startswith(line)
        after = topics_at(bootstrap), topics_at(lab_pair.source.bootstrap), topics_at(lab_pair.target.bootstrap)
        assert after == before
