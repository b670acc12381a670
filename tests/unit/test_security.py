"""A secret is a reference: it prints as ***, and only the process that connects reads what is behind it."""

from pathlib import Path

import pytest

from mirrord.model.errors import EnvironmentFault
from mirrord.model.security import Secret


def test_an_environment_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MIRRORD_TEST", "hunter2")
    assert Secret.parse("env:MIRRORD_TEST").resolve() == "hunter2"
    monkeypatch.delenv("MIRRORD_TEST")
    with pytest.raises(EnvironmentFault, match="MIRRORD_TEST is not set"):
        Secret.parse("env:MIRRORD_TEST").resolve()


def test_a_file_loses_its_line_end_only(tmp_path: Path) -> None:
    path = tmp_path / "password"
    path.write_text(" hunter2 \n")
    assert Secret.parse(f"file:{path}").resolve() == " hunter2 "
    with pytest.raises(EnvironmentFault, match="none cannot be read: No such file"):
        Secret.parse(f"file:{tmp_path}/none").resolve()
    path.write_bytes(b"\xff")
    with pytest.raises(EnvironmentFault, match="not a UTF-8 text"):
        Secret.parse(f"file:{path}").resolve()


@pytest.mark.parametrize("found", ["hunter2", "env:", "file:", "vault:x", "", None, 3])
def test_anything_else_is_refused(found: object) -> None:
    with pytest.raises(ValueError, match="a reference"):
        Secret.parse(found)


def test_it_does_not_print() -> None:
    secret = Secret.parse("env:NAME")
    assert f"{secret} {secret!r} {[secret]}" == "*** *** [***]"
