"""Logs: one JSON line per event, rotated, and never a secret."""

import fcntl
import io
import json
import logging
import os
import sys
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog

from mirrord.config.security import Secret
from mirrord.jobs.blocking import blocking
from mirrord.model import known_secrets
from mirrord.model.errors import EnvironmentFault
from mirrord.runtime import logs


@pytest.fixture(autouse=True)
def restore_logging() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    root.handlers.clear()
    yield
    for handler in root.handlers:
        handler.close()
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_events_are_json_lines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = logs.set_up(str(tmp_path / "deep"), "daemon")
    assert path == tmp_path / "deep" / "daemon.log"
    structlog.get_logger("mirrord.test").info("lane_halted", lane="a.0.b", reason="refused")
    logging.getLogger("aiohttp.server").warning("%s requests", 3)
    own, foreign = lines(path)
    assert (own["event"], own["lane"], own["reason"], own["level"]) == ("lane_halted", "a.0.b", "refused", "info")
    assert own["logger"] == "mirrord.test"
    assert own["timestamp"].endswith("Z")
    assert (foreign["event"], foreign["level"]) == ("3 requests", "warning")
    assert json.loads(capsys.readouterr().err.splitlines()[0])["event"] == "lane_halted"


def test_a_traceback_stays_on_one_line(tmp_path: Path) -> None:
    path = logs.set_up(str(tmp_path), "daemon", on_stderr=False)
    try:
        raise RuntimeError("broken")
    except RuntimeError:
        structlog.get_logger().exception("internal_error")
    (line,) = lines(path)
    assert "RuntimeError: broken" in line["exception"]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("stderr", [io.StringIO(), Terminal()], ids=["collector", "terminal"])
def test_a_traceback_shows_no_local_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stderr: io.StringIO
) -> None:
    monkeypatch.setattr(sys, "stderr", stderr)
    path = logs.set_up(str(tmp_path), "daemon")

    def connect(**options: str) -> None:
        raise RuntimeError(f"{len(options)} options")

    resolved = "hunter2"
    try:
        connect(sasl_plain_password=resolved)
    except RuntimeError as error:
        structlog.get_logger().error("flow_failed", exc_info=error)
        logging.getLogger("aiokafka").exception("a library's")
        logging.getLogger("asyncio").exception("another library's")
    for text in (stderr.getvalue(), path.read_text()):
        assert "RuntimeError: 1 options" in text
        assert "hunter2" not in text


def test_a_task_of_spark_shows_no_local_variable(capsys: pytest.CaptureFixture[str]) -> None:
    """No one configures logs in Spark's processes."""
    structlog.reset_defaults()

    async def task() -> AsyncGenerator[int, None]:
        resolved = "hunter2"
        try:
            raise RuntimeError(f"{len(resolved)} letters")
        except RuntimeError:
            structlog.get_logger().exception("cluster_news_failed", password=resolved)
        yield 1

    assert list(blocking(task)) == [1]
    output = "".join(capsys.readouterr())
    assert "RuntimeError: 7 letters" in output
    assert "hunter2" not in output


def test_secrets_are_masked_wherever_they_are(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = logs.set_up(str(tmp_path), "daemon")
    structlog.get_logger().info(
        "connecting",
        password="hunter2",
        sasl_plain_username="hunter2",
        config={"inner": [{"ssl_key_password": "hunter2"}], "topic": "orders"},
        reference=Secret.parse("env:HUNTER2"),
        token=None,
    )
    (line,) = lines(path)
    assert "hunter2" not in (path.read_text() + capsys.readouterr().err).lower()
    assert line["config"] == {"inner": [{"ssl_key_password": "***"}], "topic": "orders"}
    assert (line["password"], line["sasl_plain_username"], line["reference"], line["token"]) == (
        "***",
        "***",
        "***",
        None,
    )


def test_known_secrets_are_masked_in_texts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(known_secrets, "_known", {})
    known_secrets.remember("correct horse")
    path = logs.set_up(str(tmp_path), "daemon")
    log = structlog.get_logger()
    log.info("refused", reason="correct horse is wrong", error=ValueError("correct horse"), all=["correct horse"])
    logging.getLogger("aiokafka").error("login with %s", "correct horse")
    try:
        raise ValueError("correct horse")
    except ValueError as error:
        log.error("failed", exc_info=error)
        logging.getLogger("aiokafka").exception("failed")
    found = lines(path)
    assert len(found) == 4
    assert "correct horse" not in path.read_text() + capsys.readouterr().err
    assert found[0]["reason"] == "*** is wrong"
    assert "ValueError: ***" in str(found[2]["exception"])
    assert "ValueError: ***" in str(found[3]["exception"])


def test_retries_of_clients_stay_in_the_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = logs.set_up(str(tmp_path), "daemon")
    logging.getLogger("aiokafka.client").error("Unable to connect")
    assert capsys.readouterr().err == ""
    assert lines(path)[0]["event"] == "Unable to connect"


def test_files_rotate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "FILE_BYTES", 500)
    logs.set_up(str(tmp_path), "daemon", on_stderr=False)
    for number in range(100):
        structlog.get_logger().info("beat", number=number)
    assert len(list(tmp_path.glob("*.log*"))) == logs.FILES_KEPT + 1


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(EnvironmentFault, match=r"cannot be written: .*set \[logs\] dir"):
        logs.set_up(str(tmp_path / "file"), "daemon")


def test_the_default_place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert logs.default_directory() == tmp_path / "mirrord"
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert logs.default_directory() == tmp_path / ".local" / "state" / "mirrord"


def test_two_processes_of_one_name_write_two_files(tmp_path: Path) -> None:
    other = os.open(tmp_path / "daemon.lock", os.O_CREAT | os.O_RDWR)
    fcntl.flock(other, fcntl.LOCK_EX)
    assert logs.set_up(str(tmp_path), "daemon", on_stderr=False) == tmp_path / "daemon-2.log"
    os.close(other)
    assert logs.set_up(str(tmp_path), "daemon", on_stderr=False) == tmp_path / "daemon.log"


def test_other_users_cannot_read_the_logs(tmp_path: Path) -> None:
    former = os.umask(0)
    try:
        path = logs.set_up(str(tmp_path / "deep"), "daemon", on_stderr=False)
        structlog.get_logger().info("begun")
    finally:
        os.umask(former)
    assert [each.stat().st_mode & 0o777 for each in (path.parent, path, path.with_suffix(".lock"))] == [
        0o750,
        0o640,
        0o640,
    ]


def test_names_cannot_change_what_a_terminal_shows(capsys: pytest.CaptureFixture[str]) -> None:
    logs.plain()
    structlog.get_logger().warning("groups_not_followed", group="a\x1b]0;title\x07b\nc", count=3)
    shown = capsys.readouterr().out
    assert "a?]0;title?b?c" in shown
    assert shown.count("\n") == 1
