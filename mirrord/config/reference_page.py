"""Generates docs/reference/configuration.md from the declarations of the keys."""

import inspect
import re
import sys
import textwrap
from collections.abc import Iterator

import msgspec

from mirrord.config.changes import LIVE
from mirrord.config.key_declarations import DeclaredKey, keys_of, tables_of
from mirrord.config.schema import ClusterConfig, Config, FlowConfig
from mirrord.config.value_kinds import REQUIRED

_WIDTH = 120
_HEAD = """\
# Configuration

Generated from the declarations in `mirrord/config` (`python -m mirrord.config.reference_page`). Do not edit this page.

A conf.toml defines clusters and the flows between them. Most keys have a default and can be omitted.
[Samples](../../conf/README.md) are in `conf`. `mirrord check` reads a file and reports every error in it, with the line
number and the allowed values. Instead of a conf.toml, mirrord also accepts a MirrorMaker 2 configuration file
([mm2.properties](../how-to/take-over-from-mm2.md)).

- A duration is a number with a unit: `"500ms"`, `"5s"`, `"2m"`, `"1h"`, `"1d"`.
- A size is a number of bytes, or a number with a unit: `"64KiB"`, `"8MiB"`, `"1GiB"`, `"1MB"`.
- A regular expression has Python's syntax and must match a whole name, such as the whole name of a topic.
- A secret is a reference, never the secret itself: see [Secrets](../how-to/secure.md#secrets).
- A policy is either built in or a Python class: see [Policies](policies.md).
- A relative path is relative to the folder that contains the conf.toml.

[Apply a changed configuration](../how-to/operator-commands.md#apply-a-changed-configuration) describes how a running
daemon applies a changed file.
"""


def page() -> str:
    """Return the text of docs/reference/configuration.md."""
    return "\n".join([_HEAD, *(line for section in _sections() for line in section)])


def _sections() -> Iterator[list[str]]:
    yield _section("Before the first table", "These keys are not in a table.", Config)
    yield from _with_tables("[clusters.ALIAS]", ClusterConfig)
    yield from _with_tables("[[flows]]", FlowConfig)
    for table in tables_of(Config):
        yield from _with_tables(f"[{table.name}]", table.struct)


def _with_tables(head: str, struct: type[msgspec.Struct]) -> Iterator[list[str]]:
    yield _table(head, struct)
    for table in tables_of(struct):
        yield _table(f"[{head.strip('[]')}.{table.name}]", table.struct)


def _table(head: str, struct: type[msgspec.Struct]) -> list[str]:
    text = inspect.getdoc(struct) or ""
    return _section(f"`{head}`", f"{text}\n\n{_applied()}" if struct is FlowConfig else text, struct)


def _section(title: str, text: str, struct: type[msgspec.Struct]) -> list[str]:
    head = ["| key | default | allowed | meaning |", "|---|---|---|---|"]
    return [f"## {title}", "", text, "", *head, *map(_row, keys_of(struct)), ""]


def _applied() -> str:
    """Return the paragraph that says which changed keys cause the lanes of a running flow to be restarted."""
    keys = [f"`{each.name}`" for each in keys_of(FlowConfig) if each.field in LIVE]
    tables = [f"`{table.name}`" for table in tables_of(FlowConfig) if table.name in LIVE]
    text = (
        f"`mirrord apply` applies changes to {', '.join(keys)} and the tables {', '.join(tables[:-1])} and "
        f"{tables[-1]} without interrupting the flow's lanes. If any other key or table changes, all lanes of the "
        "flow are drained and started again. A flow's `from` and `to` cannot be changed. To copy between different "
        "clusters, give the flow a new `name`."
    )
    return textwrap.fill(text, _WIDTH, break_long_words=False, break_on_hyphens=False)


def _row(declared: DeclaredKey) -> str:
    key = declared.key
    cells = [f"`{declared.name}`", _default(declared), key.kind.allowed, key.help]
    return "| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |"


def _default(declared: DeclaredKey) -> str:
    if declared.key.unset:
        return declared.key.unset
    if declared.default is REQUIRED:
        return "required"
    toml = re.sub(r"\s*\n\s*", " ", declared.key.kind.toml(declared.default))
    return f"`{toml.replace('[ ', '[').replace(', ]', ']')}`"


if __name__ == "__main__":
    sys.stdout.write(page())
