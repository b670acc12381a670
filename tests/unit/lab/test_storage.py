"""Data folders of the lab's nodes: the tool runs once for each kind, and ids differ from folder to folder."""

from pathlib import Path

import pytest

from mirrord.lab.storage import format_folder, new_id
from mirrord.model.errors import EnvironmentFault

TOOL = """#!/bin/sh
echo "$@" >> "$(dirname "$0")/calls"
data=$(sed -n 's/^log.dirs=//p' "$3")
mkdir "$data"
printf '#\\nnode.id=1\\ndirectory.id=first\\nversion=1\\ncluster.id=first\\n' > "$data/meta.properties"
printf 'features' > "$data/bootstrap.checkpoint"
"""


def made(tool: Path, folder: Path, credentials: list[str], ids: tuple[str, int]) -> dict[str, str]:
    folder.mkdir()
    config, data = folder / "server.properties", folder / "data"
    config.write_text(f"log.dirs={data}\n")
    format_folder([str(tool)], credentials, config, data, ids)
    assert (data / "bootstrap.checkpoint").read_bytes() == b"features"
    lines = (data / "meta.properties").read_text().splitlines()
    return dict(line.split("=") for line in lines if "=" in line)


def test_the_tool_runs_once_for_each_kind_and_ids_differ(tmp_path: Path) -> None:
    tool = tmp_path / "tool"
    tool.write_text(TOOL)
    tool.chmod(0o755)
    first = made(tool, tmp_path / "1", [], ("one", 1))
    second = made(tool, tmp_path / "2", [], ("two", 100))
    made(tool, tmp_path / "3", ["SCRAM-SHA-512=[name=a,password=b]"], ("two", 2))
    assert (first["cluster.id"], first["node.id"], first["version"]) == ("one", "1", "1")
    assert (second["cluster.id"], second["node.id"], second["version"]) == ("two", "100", "1")
    assert len({first["directory.id"], second["directory.id"], "first"}) == 3
    calls = (tmp_path / "calls").read_text().splitlines()
    assert ["--add-scram" in call for call in calls] == [False, True]


def test_a_tool_that_refuses_is_reported(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentFault, match="refuses the settings of the lab"):
        format_folder(["false"], [], tmp_path / "none", tmp_path / "data", ("one", 1))


def test_ids_are_what_kafka_takes() -> None:
    ids = {new_id() for _ in range(500)}
    assert len(ids) == 500
    assert {len(text) for text in ids} == {22}
    assert not any(text.startswith("-") for text in ids)
