"""Another alias of a cluster, other target names, ledgers of flows that no longer exist: nothing is duplicated."""

import json
from pathlib import Path

from confluent_kafka.admin import AdminClient

from tests.fixtures.daemon import SECONDS, Daemon, all_ends, conf, fill, mirrord, unique
from tests.fixtures.lab import LabPair, client_settings
from tests.fixtures.mirror import Written, create_topic, ends, write
from tests.kafka.test_both_ways import both_ways
from tests.kafka.test_recreated import delete

DAMAGED = b"\x09\x94"
"""Has the form of a ledger entry, but cannot be read."""


def test_another_alias_is_refused_and_another_separator_is_reported(lab_pair: LabPair, tmp_path: Path) -> None:
    source, target = lab_pair.source, lab_pair.target
    topic, flow = unique("alias"), unique("names")
    create_topic(source, topic)
    fill(source, topic, 1, 100)
    path = conf(tmp_path, source, target, topic, flow=flow)
    with Daemon(path) as daemon:
        daemon.until_copied(all_ends(source, topic))
        assert daemon.stop() == 0
    first = path.read_text()
    path.write_text(first.replace("[clusters.eu]", "[clusters.east]").replace('from = "eu"', 'from = "east"'))
    refused = mirrord("start", path)
    assert refused.returncode == 2, refused.stdout
    assert f"{topic} was copied into eu.{topic} and would be copied again into east.{topic}" in refused.stderr
    assert "call the cluster eu again to continue, or give the flow a different name" in refused.stderr
    assert "was called eu" in mirrord("check", path).stdout
    planned = mirrord("start", path, "--dry-run")
    assert (planned.returncode, planned.stderr) == (2, refused.stderr), planned.stdout
    assert f"east.{topic}" not in AdminClient(client_settings(target)).list_topics(timeout=SECONDS).topics
    path.write_text(first.replace("refresh = ", 'separator = "-"\nrefresh = '))
    with Daemon(path) as daemon:
        daemon.until(lambda: ends(target, f"eu-{topic}").get(0) == 100)
        remark = f"it was copied into eu.{topic} before, which gets no more records: its target topic is now eu-{topic}"
        daemon.until(lambda: remark in daemon.flow().note)
        assert any(event.get("reason") == remark for event in daemon.events())
        assert daemon.stop() == 0
    path.write_text(first)
    fill(source, topic, 1, 50, first=100)
    with Daemon(path) as daemon:
        daemon.until_copied(all_ends(source, topic))
        assert daemon.stop() == 0
    assert [ends(target, f"eu{between}{topic}")[0] for between in ".-"] == [150, 100]


def test_a_ledger_that_somebody_left_at_the_source(lab_pair: LabPair, tmp_path: Path) -> None:
    """An empty ledger proves that its flow never wrote, and so does one that holds nothing of mirrord's. An unreadable
    one blocks what may be its copies, and is named."""
    source, target = lab_pair.source, lab_pair.target
    topic, stray, broken = unique("both"), unique("stray"), unique("broken")
    for cluster in (source, target):
        create_topic(cluster, topic)
    create_topic(source, f"mirrord.{stray}.ledger")
    write(source, f"mirrord.{stray}.ledger", [Written(b"k", b"no ledger", partition=0)])

    def put(first: int) -> None:
        records = [Written(b"%d" % n, b"v", partition=0) for n in range(first, first + 20)]
        write(source, topic, records, enable_idempotence=True)

    path = both_ways(tmp_path, lab_pair, topic, unique("ways"))
    put(0)
    with Daemon(path) as daemon:
        daemon.until(lambda: ends(target, topic)[0] == 20)
        create_topic(source, f"mirrord.{broken}.ledger")
        write(source, f"mirrord.{broken}.ledger", [Written(b"k", DAMAGED, partition=0)])
        put(20)

        def remarks() -> str:
            return json.dumps([flow.remarks for flow in daemon.status().flows])

        daemon.until(lambda: f"delete mirrord.{broken}.ledger there" in remarks())
        assert any(broken in event["reason"] for event in daemon.events() if event["event"] == "copies_not_told_apart")
        assert ends(target, topic)[0] == 20
        delete(source, f"mirrord.{broken}.ledger")
        daemon.until(lambda: ends(target, topic)[0] == 40)
        daemon.until(lambda: broken not in remarks())
        assert daemon.stop() == 0
    assert ends(source, topic)[0] == 40, "nothing came back"
    delete(source, f"mirrord.{stray}.ledger")
