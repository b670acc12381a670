"""The follower of groups as an actor: a killed one is replaced, and its successor knows everything again. Also a record
that the target refuses, decided on through the daemon."""

import json
import os
import signal
import urllib.request
from pathlib import Path

import psutil

from tests.fixtures.daemon import RAY_START_S, SECONDS, Daemon, all_ends, conf, fill, mirrord, unique
from tests.fixtures.groups import commit
from tests.fixtures.lab import LabPair
from tests.fixtures.mirror import Written, create_topic, write


def test_a_killed_follower_is_replaced_and_a_refused_record_is_left_out(lab_pair: LabPair, tmp_path: Path) -> None:
    topic, group = create_topic(lab_pair.source, unique("orders")), unique("group")
    create_topic(lab_pair.target, f"eu.{topic}", max_message_bytes="20000")
    fill(lab_pair.source, topic, 1, 100)
    path = conf(
        tmp_path,
        lab_pair.source,
        lab_pair.target,
        topic,
        flow=unique("ray"),
        engine="ray",
        more="[ray]\ndashboard = false\n",
        flow_more=f'groups = {{ match = ["{group}"], refresh = "300ms" }}\nsync = {{ configs = false }}',
    )
    path.write_text(f'instance = "{unique("groups")}"\n{path.read_text()}')
    with Daemon(path) as daemon:
        daemon.until(lambda: "daemon_ready" in daemon.output, RAY_START_S)

        def in_step() -> list[int | None]:
            with urllib.request.urlopen(f"{daemon.http()}/groups", timeout=SECONDS) as answer:
                flows = json.load(answer)["flows"]
            return [each["target_offset"] for flow in flows for each in flow["groups"] if each["state"] == "in step"]

        def followers() -> list[psutil.Process]:
            # Ray names a process after the actor's class.
            children = psutil.Process(daemon.process.pid).children(recursive=True)
            return [each for each in children if each.is_running() and "GroupsActor" in " ".join(each.cmdline())]

        commit(lab_pair.source, group, topic, {0: 40})
        daemon.until(lambda: in_step() == [40])
        (follower,) = followers()
        os.kill(follower.pid, signal.SIGKILL)
        commit(lab_pair.source, group, topic, {0: 10})
        daemon.until(lambda: in_step() == [10])
        assert [each.pid for each in followers()] != [follower.pid]
        write(lab_pair.source, topic, [Written(b"large", os.urandom(50_000))])
        fill(lab_pair.source, topic, 1, 10)
        daemon.until(lambda: daemon.flow().totals.lanes == {"halted": 1})
        assert "Kafka error 10 (MESSAGE_TOO_LARGE)" in daemon.flow().lanes[0].note
        daemon.until(lambda: daemon.flow().lanes[0].source_end == 111)
        skip = ("quarantine", "skip", f"{topic}-0", "100", path, "--why", "too large")
        beyond = mirrord(*skip, "--until", "1000")
        assert (beyond.returncode, "to 111, where the source ends" in beyond.stderr) == (2, True), beyond.stderr
        assert mirrord(*skip).returncode == 0
        daemon.until(lambda: all_ends(lab_pair.target, f"eu.{topic}") == {(f"eu.{topic}", 0): 110})
        daemon.until(lambda: daemon.flow().totals.lanes == {"copying": 1})
        assert daemon.stop() == 0
