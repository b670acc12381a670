"""The map of a real copy: a daemon copies a transactional source, and its ledger is opened after it has ended.

Ten transactions a second, with a record in each of 100 partitions: each commit writes a marker into every partition, so
each gets a run. This is a tenth of the work of producers with separate transactions for 100 partitions, and results in
the same ledger.
"""

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from confluent_kafka import KafkaException, Producer

from bench.harness.clusters import Admin
from bench.harness.daemon import Daemon, Settings
from bench.harness.load import Topic
from mirrord.lab.cluster import Cluster
from mirrord.model.errors import EnvironmentFault

TOPIC = "transactions"
PARTITIONS = 100
COMMITS_PER_S = 10
SECONDS = 600.0
START_S = 120.0
ANSWER_S = 60.0


def copy(source: Cluster, target: Cluster, flow_name: str, share: float, print_line: Callable[[str], None]) -> int:
    """Write and copy. Return the number of committed transactions. Raises EnvironmentFault."""
    Admin(source.bootstrap).create([Topic(TOPIC, PARTITIONS, "none")])
    with tempfile.TemporaryDirectory(prefix="mirrord-map-") as folder:
        settings = Settings(
            source=source.bootstrap, target=target.bootstrap, topics=TOPIC, engine="process", flow=flow_name
        )
        daemon = Daemon(Path(folder), settings)
        try:
            daemon.start()
            daemon.wait_for("lane", lambda flow: flow.totals.lanes.get("copying", 0) >= PARTITIONS, START_S)
            print_line(f"map: copied: {COMMITS_PER_S} transactions a second in {PARTITIONS} partitions")
            commits = _write(source.bootstrap, SECONDS * share)
            print_line(f"map: copied: {commits:,} transactions are written")
            daemon.wait_for("record", lambda flow: flow.totals.lag_records == 0, START_S)
        finally:
            daemon.stop()
    return commits


def _write(bootstrap: str, seconds: float) -> int:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": TOPIC, "linger.ms": 0})
    commits = 0
    try:
        producer.init_transactions(ANSWER_S)
        began = time.monotonic()
        while time.monotonic() < began + seconds:
            producer.begin_transaction()
            for partition in range(PARTITIONS):
                producer.produce(TOPIC, b"%d" % commits, partition=partition)
            producer.commit_transaction(ANSWER_S)
            commits += 1
            time.sleep(max(0.0, began + commits / COMMITS_PER_S - time.monotonic()))
    except KafkaException as error:
        raise EnvironmentFault(f"a transaction failed: {error}") from error
    return commits
