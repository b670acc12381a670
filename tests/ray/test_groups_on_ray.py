"""The follower of groups as an actor: one that is killed is replaced, and its successor knows all of it again."""

import json
import os
import signal
import urllib.request
from pathlib import Path

import psutil

from tests.fixtures.daemon import SECONDS, Daemon, conf, fill, unique
from tests.fixtures.groups import commit
from tests.fixtures.lab import LabPair
from tests.fixtures.mirror import create_topic

START_S = 150.0


def test_a_killed_follower_is_replaced(lab_pair: LabPair, tmp_path: Path) -> None:
    topic, group = create_topic(lab_pair.source, unique("orders")), unique("group")
    fill(lab_pair.source, topic, 1, 100)
    path = conf(
        tmp_path,
        lab_pair.source,
        lab_pair.target,
        topic,
        flow=unique("ray"),
        engine="ray",
        more="[ray]\ndashboard = false\n",
        flow_more=f'groups = {{ match = ["{group}"], refresh = "300ms" }}',
    )
    path.write_text(f'instance = "{unique("groups")}"\n{path.read_text()}')
    with Daemon(path) as daemon:
        daemon.until(lambda: "daemon_ready" in daemon.output, START_S)

        def in_step() -> list[int | None]:
            with urllib.request.urlopen(f"{daemon.http()}/groups", timeout=SECONDS) as answer:
                flows = json.load(answer)["flows"]
            return [each["target_offset"] for flow in flows for each in flow["groups"] if each["state"] == "in step"]

        def followers() -> list[psutil.Process]:
            # Ray names a process by the actor's class.
            children = psutil.Process(daemon.process.pid).children(recursive=True)
            return [each for each in children if each.is_running() and "GroupsActor" in " ".join(each.cmdline())]

        commit(lab_pair.source, group, topic, {0: 40})
        daemon.until(lambda: in_step() == [40])
        (follower,) = followers()
        os.kill(follower.pid, signal.SIGKILL)
        commit(lab_pair.source, group, topic, {0: 10})
        daemon.until(lambda: in_step() == [10])
        assert [each.pid for each in followers()] != [follower.pid]
        assert daemon.stop() == 0
