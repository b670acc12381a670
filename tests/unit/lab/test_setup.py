"""Finding Java, jars and ports: what is missing gets one clear line, and nothing is downloaded here."""

import multiprocessing
import socket
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from pathlib import Path

import psutil
import pytest

from mirrord.lab import cluster_pair, jars, ports
from mirrord.model.errors import ConfigError, EnvironmentFault
from mirrord.runtime import java


@pytest.fixture
def no_java_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)


def fake_java(folder: Path, says: str) -> Path:
    path = folder / "bin" / "java"
    path.parent.mkdir()
    path.write_text(f"#!/bin/sh\necho '{says}' >&2\n")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("    java.specification.version = 17\n", 17),
        ("x\n    java.specification.version = 1.8\ny\n", 8),
        ("openjdk version 17", None),
        ("", None),
    ],
)
def test_java_release(said: str, expected: int | None) -> None:
    assert java.java_release(said) == expected


def test_no_java_on_the_path(no_java_home: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(EnvironmentFault, match=r"^the lab needs Java 17 or newer .* there is no java on the PATH$"):
        java.find_java()


def test_java_home_without_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(EnvironmentFault, match=r"does not start: No such file or directory$"):
        java.find_java()


def test_java_is_too_old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = fake_java(tmp_path, "    java.specification.version = 11")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(EnvironmentFault, match=rf"{path} is Java 11$"):
        java.find_java()


def test_java_home_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = fake_java(tmp_path, "    java.specification.version = 21")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert java.find_java() == str(path)


@pytest.mark.parametrize("version", ["latest", "4.3", "../4.3.0", ""])
def test_what_is_no_version_is_not_asked_for(version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MIRRORD_CACHE", str(tmp_path))
    with pytest.raises(ConfigError, match="is not a version of Apache Kafka"):
        jars.kafka_jars(version)
    assert list(tmp_path.iterdir()) == []


def test_cache_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/caches")
    monkeypatch.delenv("MIRRORD_CACHE", raising=False)
    assert jars.cache_folder() == Path("/caches/mirrord")
    monkeypatch.setenv("MIRRORD_CACHE", "/mine")
    assert jars.cache_folder() == Path("/mine")


def test_ivy_is_found_without_pyspark_being_imported() -> None:
    assert jars.find_ivy().name.startswith("ivy-")


def test_ivy_module_asks_for_the_version() -> None:
    wanted = ET.fromstring(jars.ivy_module("3.9.1")).findall("dependencies/dependency")
    assert ("kafka_2.13", "3.9.1") in {(each.get("name"), each.get("rev")) for each in wanted}
    assert {each.get("conf") for each in wanted} == {"default->master,runtime(default)"}


def test_ivy_module_asks_for_a_single_jar() -> None:
    (wanted,) = ET.fromstring(jars.ivy_module("3.9.1", jars.TIERED_STORAGE)).findall("dependencies/dependency")
    (artifact,) = wanted
    assert (wanted.get("name"), wanted.get("rev"), wanted.get("conf")) == ("kafka-storage", "3.9.1", "default->master")
    assert artifact.get("{http://ant.apache.org/ivy/maven}classifier") == "test"
    assert jars.TIERED_STORAGE.jar("3.9.1") == "kafka-storage-3.9.1-test.jar"


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        (":: problems ::\n\t\tmodule not found: a#b;1\n\t:: FAILED", "module not found: a#b;1"),
        ("\tServer access error at url x (java.net.UnknownHostException: x)\n", "Server access error"),
        ("nothing telling\n", "nothing telling"),
        ("", "Ivy said nothing"),
    ],
)
def test_ivy_complaint(output: str, expected: str) -> None:
    assert jars.ivy_complaint(output).startswith(expected)


def download_slowly(counter: Path) -> None:
    def download(version: str, bundle: jars.Bundle, folder: Path) -> None:
        with counter.open("a") as count:
            count.write("x")
        time.sleep(0.2)  # long enough for the other process to start
        folder.mkdir()

    jars._download = download
    jars.kafka_jars("1.2.3")


def test_two_processes_download_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MIRRORD_CACHE", str(tmp_path / "cache"))
    counter = tmp_path / "downloads"
    forks = multiprocessing.get_context("fork")
    both = [forks.Process(target=download_slowly, args=(counter,)) for _ in range(2)]
    for each in both:
        each.start()
    for each in both:
        each.join(30)
    assert [each.exitcode for each in both] == [0, 0]
    assert counter.read_text() == "x"


@pytest.mark.parametrize(
    ("ephemeral", "expected"),
    [
        ((32_768, 60_999), (20_000, 32_767)),
        ((10_000, 40_000), (40_001, 65_535)),
        ((1_024, 65_535), (20_000, 65_535)),
    ],
)
def test_ports_are_outside_the_range_of_outgoing_connections(
    ephemeral: tuple[int, int], expected: tuple[int, int]
) -> None:
    assert ports.widest_gap(*ephemeral) == expected


def test_free_ports_are_free_and_given_once() -> None:
    first, second = ports.free_ports(20), ports.free_ports(20)
    assert len({*first, *second}) == 40
    for port in first:
        with socket.socket() as listener:
            listener.bind((ports.LOOPBACK, port))


def test_another_process_does_not_get_the_port_of_a_broker_that_is_down() -> None:
    (port,) = ports.free_ports(1)
    attempt = f"from mirrord.lab import ports; raise SystemExit(ports._is_reserved({port}))"
    assert ports._is_reserved(port)
    assert subprocess.run([sys.executable, "-c", attempt], check=False).returncode == 0


def test_a_port_that_somebody_listens_on_is_not_free() -> None:
    with socket.create_server((ports.LOOPBACK, 0)) as listener:
        assert not ports._is_free(listener.getsockname()[1])


def test_a_process_id_that_was_given_again_is_not_ours(tmp_path: Path) -> None:
    mine = psutil.Process().pid
    assert not cluster_pair.is_running(cluster_pair.LabCluster("127.0.0.1:1", mine, str(tmp_path)))


def test_a_state_file_of_somebody_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "lab.json").write_text('{"version": 3}')
    with pytest.raises(EnvironmentFault, match=r"lab\.json does not say where the lab is"):
        cluster_pair.status(tmp_path)
    assert cluster_pair.status(tmp_path / "none") is None
