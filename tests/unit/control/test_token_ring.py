"""The tokens of a daemon: names, roles, and files that change while it runs."""

from pathlib import Path

import pytest
from structlog.testing import capture_logs

from mirrord.config.http import HttpConfig, HttpToken, Role
from mirrord.config.security import Secret
from mirrord.control.command_proof import RequestLine, prove
from mirrord.control.local_token import LocalToken
from mirrord.control.token_ring import Caller, TokenRing, token_faults

LONG, OTHER, THIRD = "one token of many letters", "another token, as long", "a third one of them"
LINE = RequestLine("127.0.0.1:8182", "POST", "/stop")


def ring(folder: Path, **tokens: tuple[Role, str]) -> TokenRing:
    made: list[HttpToken] = []
    for name, (role, token) in tokens.items():
        (folder / name).write_text(token)
        made.append(HttpToken(name, role, Secret(f"file:{folder / name}")))
    return TokenRing(HttpConfig(tokens=tuple(made)), None)


@pytest.mark.parametrize(
    ("role", "may"), [("view", "v"), ("operate", "vo"), ("configure", "voc")], ids=["view", "operate", "configure"]
)
def test_each_role_includes_the_ones_before_it(role: Role, may: str) -> None:
    caller = Caller("ops", role)
    assert "".join(each[0] for each in ("view", "operate", "configure") if caller.may(each)) == may


def test_a_name_belongs_to_its_token(tmp_path: Path) -> None:
    tokens = ring(tmp_path, ops=("operate", LONG), see=("view", OTHER))
    assert tokens.caller_of_proof(prove("ops", LONG, "n", LINE, b""), LINE) == Caller("ops", "operate")
    assert tokens.caller_of_proof(prove("ops", OTHER, "n", LINE, b""), LINE) is None
    assert tokens.caller_of_proof(prove("local", LONG, "n", LINE, b""), LINE) is None
    assert tokens.caller_of_token(OTHER, None) == Caller("see", "view")
    assert tokens.caller_of_token(OTHER, "see") == Caller("see", "view")
    assert tokens.caller_of_token(OTHER, "ops") is None
    assert tokens.caller_of_token("", None) is None
    assert tokens.caller_of_token("\udcff", None) is None


def test_a_changed_file_applies_at_once(tmp_path: Path) -> None:
    tokens = ring(tmp_path, ops=("operate", LONG))
    former = prove("ops", LONG, "n", LINE, b"")
    (tmp_path / "ops").write_text("")
    assert tokens.caller_of_proof(former, LINE) is None, "a file that is just being written admits nobody"
    assert tokens.caller_of_proof(prove("ops", "", "n", LINE, b""), LINE) is None
    (tmp_path / "ops").write_text("short")
    assert tokens.caller_of_proof(prove("ops", "short", "n", LINE, b""), LINE) is None
    (tmp_path / "ops").write_text(OTHER)
    assert tokens.caller_of_proof(former, LINE) is None
    assert tokens.caller_of_proof(prove("ops", OTHER, "n", LINE, b""), LINE) == Caller("ops", "operate")
    (tmp_path / "ops").unlink()
    assert tokens.caller_of_proof(prove("ops", OTHER, "n", LINE, b""), LINE) is None


def test_the_local_token_is_proved_and_never_sent(tmp_path: Path) -> None:
    local = LocalToken(tmp_path / "c")
    tokens = TokenRing(HttpConfig(), local)
    assert tokens.caller_of_proof(prove("local", local.token, "n", LINE, b""), LINE) == Caller("local", "configure")
    assert tokens.caller_of_token(local.token, None) is None
    assert (tokens.key_id, TokenRing(HttpConfig(), None).key_id) == (local.key_id, "")


def test_empty_and_short_tokens_are_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("\n")
    (tmp_path / "short").write_text("x" * 15)
    (tmp_path / "enough").write_text("x" * 16)
    http = HttpConfig(
        token=Secret(f"file:{tmp_path}/empty"),
        tokens=(
            HttpToken("ops", "operate", Secret(f"file:{tmp_path}/short")),
            HttpToken("see", "view", Secret(f"file:{tmp_path}/enough")),
            HttpToken("gone", "view", Secret("env:NO_SUCH_VARIABLE_HERE")),
        ),
    )
    first, second, third = token_faults(http)
    assert first.startswith("http.token: the secret file:")
    assert second.startswith("http.tokens[0] (ops): the token file:")
    assert "fewer than 16 characters" in second
    assert third.startswith("http.tokens[2] (gone): the environment variable")
    assert "x" * 15 not in second


def test_the_old_token_has_all_roles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MIRRORD_TEST_TOKEN", THIRD)
    tokens = TokenRing(HttpConfig(token=Secret("env:MIRRORD_TEST_TOKEN")), None)
    assert tokens.caller_of_proof(prove("token", THIRD, "n", LINE, b""), LINE) == Caller("token", "configure")


def test_equal_tokens_are_refused(tmp_path: Path) -> None:
    """A client with one role could use the other one, and records of commands could name the wrong client."""
    for name, token in (("a", LONG), ("b", OTHER), ("c", LONG)):
        (tmp_path / name).write_text(token)
    http = HttpConfig(
        token=Secret(f"file:{tmp_path}/a"),
        tokens=(
            HttpToken("see", "view", Secret(f"file:{tmp_path}/b")),
            HttpToken("ops", "view", Secret(f"file:{tmp_path}/c")),
        ),
    )
    (fault,) = token_faults(http)
    assert fault == "http.tokens[1] (ops): this token equals http.token; each client needs its own token"
    tokens = TokenRing(http, None)
    assert tokens.caller_of_token(LONG, None) is None, "it may have become equal since the start"
    assert tokens.caller_of_proof(prove("token", LONG, "n", LINE, b""), LINE) is None
    assert tokens.caller_of_token(OTHER, None) == Caller("see", "view")


def test_a_token_that_is_no_text_stops_no_other_client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MIRRORD_TEST_TOKEN", "\udcff" * 20)
    bad = HttpToken("bad", "view", Secret("env:MIRRORD_TEST_TOKEN"))
    local = LocalToken(tmp_path / "c")
    http = HttpConfig(tokens=(bad,))
    tokens = TokenRing(http, local)
    assert tokens.caller_of_token(LONG, None) is None
    assert tokens.caller_of_proof(prove("local", local.token, "n", LINE, b""), LINE) == Caller("local", "configure")
    assert list(token_faults(http)) == ["http.tokens[0] (bad): the secret env:MIRRORD_TEST_TOKEN is not UTF-8 text"]


def test_an_unusable_token_is_logged_once(tmp_path: Path) -> None:
    """Any client can cause tokens to be read, and must not fill the log."""
    tokens = ring(tmp_path, ops=("operate", "short"), see=("view", OTHER))
    with capture_logs() as logs:
        for _ in range(5):
            assert tokens.caller_of_token(LONG, None) is None
        assert [(each["event"], each["name"]) for each in logs] == [("token_unusable", "ops")]
        (tmp_path / "ops").unlink()
        tokens.caller_of_token(LONG, None)
        (tmp_path / "ops").write_text(LONG)
        assert tokens.caller_of_token(LONG, None) == Caller("ops", "operate")
        (tmp_path / "ops").unlink()
        tokens.caller_of_token(LONG, None)
    assert len(logs) == 3
