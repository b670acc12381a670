"""A secret is a reference: it prints as ***, and only the process that connects reads its value."""

import os
from pathlib import Path

import pytest

from mirrord.config import property_providers
from mirrord.config.property_providers import Providers
from mirrord.config.security import Secret
from mirrord.model.errors import EnvironmentFault


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
    with pytest.raises(EnvironmentFault, match="not UTF-8 text"):
        Secret.parse(f"file:{path}").resolve()


def test_a_key_of_a_properties_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "mm2.properties"
    path.write_text(
        "us.ssl.key.password = hunter2\n"
        'us.sasl.jaas.config = P required username="u" \\\n  password="${env:MIRRORD_TEST}";\n'
        "config.providers = secrets\n"
        "config.providers.secrets.class = org.apache.kafka.common.config.provider.FileConfigProvider\n"
        f"other = ${{secrets:{path}:us.ssl.key.password}}\n"
        "unknown = ${vault:a:b}\n"
    )
    monkeypatch.setenv("MIRRORD_TEST", "swordfish")

    def resolved(rest: str) -> str:
        return Secret.parse(f"properties:{path}#{rest}").resolve()

    assert resolved("us.ssl.key.password") == "hunter2"
    assert resolved("us.sasl.jaas.config#password") == "swordfish"
    assert resolved("other") == "hunter2"
    assert resolved("unknown") == "${vault:a:b}"
    for rest, reason in [
        ("none", "has no key none"),
        ("us.sasl.jaas.config#pw", "has no option pw"),
        ("us.ssl.key.password#pw", "is not a sasl.jaas.config"),
    ]:
        with pytest.raises(EnvironmentFault, match=reason) as fault:
            resolved(rest)
        assert "hunter2" not in str(fault.value)
    monkeypatch.delenv("MIRRORD_TEST")
    with pytest.raises(EnvironmentFault, match="MIRRORD_TEST is not set"):
        resolved("us.sasl.jaas.config#password")


@pytest.mark.parametrize("text", ["", "\n", " \t\r\n", "\ufeff", "\ufeff\r\n", "\u200b"])
def test_an_empty_secret_is_none(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text(text)
    (tmp_path / "properties").write_text('key =\nlogin = P required password="";\n')
    monkeypatch.setenv("MIRRORD_TEST", text)
    properties = f"properties:{tmp_path}/properties#"
    for reference in ("env:MIRRORD_TEST", f"file:{tmp_path}/file", f"{properties}key", f"{properties}login#password"):
        with pytest.raises(EnvironmentFault, match=f"the secret {reference} is empty"):
            Secret.parse(reference).resolve()


def test_what_is_no_text_is_named_and_not_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "properties").write_text("key = ${env:MIRRORD_TEST}\n")
    monkeypatch.setenv("MIRRORD_TEST", "hunter2\udcff")
    for reference in ("env:MIRRORD_TEST", f"properties:{tmp_path}/properties#key"):
        with pytest.raises(EnvironmentFault, match=f"^the secret {reference} is not UTF-8 text$"):
            Secret.parse(reference).resolve()


@pytest.mark.parametrize("kind", ["file:{}", "properties:{}#key"])
def test_only_regular_files_of_a_moderate_size_are_read(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reading a pipe or a device would take forever, and a daemon reads tokens while it answers requests."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to(tmp_path / "pipe")
    (tmp_path / "large").write_text("key = hunter2")
    monkeypatch.setattr(property_providers, "MOST_BYTES", 10)
    for path, reason in [
        (f"{tmp_path}/pipe", "is not a regular file"),
        (f"{tmp_path}/link", "is not a regular file"),
        ("/dev/zero", "is not a regular file"),
        (f"{tmp_path}", "is not a regular file"),
        (f"{tmp_path}/a\0b", "cannot be read: embedded null byte"),
        (f"{tmp_path}/large", "is larger than 0 MiB"),
    ]:
        with pytest.raises(EnvironmentFault, match=reason):
            Secret.parse(kind.format(path)).resolve()


def test_a_file_of_a_directory(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("hunter2")
    expression = Providers({"here": "directory"}).whole(f"${{here:{tmp_path}:password}}")
    assert expression is not None
    assert (expression.resolve(), expression.reference) == ("hunter2", f"file:{tmp_path}/password")


@pytest.mark.parametrize(
    "found",
    [
        "properties:x",
        "properties:x#",
        "properties:#k",
        "properties:a#b#c#d",
        "x",
        "env:",
        "file:",
        "vault:x",
        "",
        None,
        3,
    ],
)
def test_anything_else_is_refused(found: object) -> None:
    with pytest.raises(ValueError, match="a reference"):
        Secret.parse(found)


def test_it_does_not_print() -> None:
    secret = Secret.parse("env:NAME")
    assert f"{secret} {secret!r} {[secret]}" == "*** *** [***]"
