"""Secrets in every place where a configuration refers to one, and a search for them wherever mirrord writes."""

import json
import os
import tempfile
import threading
import urllib.request
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from mirrord.lab.cluster import Cluster
from tests.fixtures.daemon import RAY_START_S, SECONDS, Daemon, all_ends, conf, fill, mirrord, unique
from tests.fixtures.lab import LabPair, client_settings
from tests.fixtures.mirror import create_topic

POLICY = """
class Peppered:
    def __init__(self, source, target, pepper):
        self._pepper = pepper

    def changed(self, record):
        if record.offset % 100 == 50:
            raise ValueError(f"no digest with {self._pepper!r}")
        return record
"""


@contextmanager
def arguments_of_children() -> Generator[set[str]]:
    """Collect the arguments of all processes that this process starts, directly or indirectly."""
    found: set[str] = set()
    ended = threading.Event()

    def look() -> None:
        own = psutil.Process()
        while not ended.wait(0.2):
            for each in own.children(recursive=True):
                try:
                    found.add(" ".join(each.cmdline()))
                except psutil.Error:
                    continue

    looking = threading.Thread(target=look)
    looking.start()
    try:
        yield found
    finally:
        ended.set()
        looking.join()


def records_of(cluster: Cluster, part: str) -> Iterator[bytes]:
    """The keys and values in all topics whose name contains this part."""
    settings = client_settings(cluster) | {"group.id": "canary", "enable.auto.commit": False}
    consumer = Consumer(settings)
    for topic in (name for name in AdminClient(settings).list_topics(timeout=30).topics if part in name):
        _, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), SECONDS)
        consumer.assign([TopicPartition(topic, 0, 0)])
        while consumer.position([TopicPartition(topic, 0)])[0].offset < end:
            for message in consumer.consume(1_000, 1.0):
                yield (message.key() or b"") + (message.value() or b"")
    consumer.close()


def files_below(*folders: Path) -> Iterator[tuple[str, bytes]]:
    """The contents of all regular files below these folders."""
    for folder in folders:
        for path in folder.rglob("*"):
            if path.is_file() and not path.is_symlink():
                yield str(path), path.read_bytes()


def as_bytes(text: str | bytes) -> bytes:
    return text if isinstance(text, bytes) else text.encode()


def secrets_in(folder: Path, cluster: Cluster) -> dict[str, str]:
    """Secrets, which are also written to files of this folder."""
    folder.mkdir()
    secrets = {"password": Path(cluster.security("admin")["password"].removeprefix("file:")).read_text()}
    for name in ("token", "pepper", "spark", "ledger"):
        secrets[name] = f"canary-{name}-{os.urandom(8).hex()}"
        (folder / name).write_text(secrets[name])
    return secrets


def conf_with_secrets(folder: Path, pair: LabPair, target: Cluster, topics: tuple[str, str], flow: str) -> Path:
    """A conf.toml with each kind of secret. The second topic has a policy that fails."""
    keys, module = folder / "keys", f"policies_{unique('of').replace('-', '_')}"
    (folder / f"{module}.py").write_text(POLICY)
    more = f"""[flows.records]
topics = ["{topics[1]}"]
transform = "{module}:Peppered"
transform_settings = {{ pepper = {{ secret = "file:{keys}/pepper" }} }}
[http]
token = "file:{keys}/token"
[ledger]
key = "file:{keys}/ledger"
[audit]
every = "10s"
level = "records"
out = "{folder / "audits"}"
spark.master = "local[1]"
spark.local.dir = "{folder / "spark"}"
spark.hadoop.fs.s3a.secret.key = {{ secret = "file:{keys}/spark" }}
"""
    security = target.security("admin") | {"password": "env:CANARY_PASSWORD"}
    path = conf(folder, pair.source, target, "|".join(topics), flow=flow, engine="ray", security=security, more=more)
    path.write_text(f'instance = "{unique("ray")}"\n{path.read_text()}')
    return path


def output_of(*arguments: str | Path, code: int | None = None) -> str:
    """What a command prints."""
    answer = mirrord(*arguments)
    assert code is None or answer.returncode == code, answer.stderr
    return answer.stdout + answer.stderr


def test_no_secret_appears_anywhere(
    lab_pair: LabPair, lab_sasl: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = lab_pair.source, lab_sasl
    secrets = secrets_in(tmp_path / "keys", target)
    monkeypatch.setenv("CANARY_PASSWORD", secrets["password"])
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    topic, peppered = create_topic(source, unique("canary"), 1), create_topic(source, unique("peppered"), 1)
    for each in (topic, peppered):
        fill(source, each, 1, 200)
    flow = unique("canary")
    path = conf_with_secrets(tmp_path, lab_pair, target, (topic, peppered), flow)
    (tmp_path / "spark").mkdir()
    ray_folders = set(Path(tempfile.gettempdir()).glob("mirrord-ray-*"))
    texts: dict[str, str | bytes] = {}
    with arguments_of_children() as arguments, Daemon(path) as daemon:
        daemon.until(lambda: "daemon_ready" in daemon.output, RAY_START_S)
        daemon.until_copied(all_ends(source, topic))
        daemon.until(lambda: [lane.state for lane in daemon.flow().lanes if lane.topic == peppered] == ["halted"])
        daemon.until(lambda: daemon.flow().jobs and all(job.outcome for job in daemon.flow().jobs), RAY_START_S)
        for page in ("status", "metrics", ""):
            with urllib.request.urlopen(f"{daemon.http()}/{page}", timeout=SECONDS) as response:
                texts[f"/{page}"] = response.read()
        for verb in ("status", "lag", "gaps", "audit", "check", "ledger"):
            texts[verb] = output_of(verb, path, "--json")
        for verb in ("pause", "resume"):
            texts[verb] = output_of(verb, topic, path, code=0)
        path.write_text(path.read_text().replace("/pepper", "/other"))
        texts["refused"] = output_of("apply", path, code=2)
        (tmp_path / "keys" / "other").write_text(secrets["pepper"])
        texts["apply"] = output_of("apply", path, code=0)
        new = set(Path(tempfile.gettempdir()).glob("mirrord-ray-*")) - ray_folders
        assert new
        texts |= dict(files_below(*new, tmp_path / "spark", tmp_path / "logs", tmp_path / "audits"))
        assert daemon.stop() == 0
    texts |= dict(files_below(tmp_path / "logs"))
    texts |= {"output": daemon.output, "arguments": json.dumps(sorted(arguments))}
    texts |= {f"record {number} of the ledger": data for number, data in enumerate(records_of(target, flow))}
    assert len(texts) > 50
    # The message of the policy's exception is everywhere, without the secret.
    halted = {where for where, text in texts.items() if b"no digest with" in as_bytes(text)}
    assert {"status", "/status"} <= halted
    assert any(where.startswith("record") for where in halted)
    assert any(where.startswith(str(tmp_path / "logs")) for where in halted)
    found = [
        f"{name} in {where}"
        for where, text in texts.items()
        for name, secret in secrets.items()
        if secret.encode() in as_bytes(text)
    ]
    assert found == []
