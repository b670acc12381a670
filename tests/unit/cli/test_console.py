"""Texts from other clients of the clusters do not control the terminal."""

import pytest
from rich.markup import escape
from rich.table import Table

from mirrord.cli.status_watch import console


def test_names_do_not_control_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    table = Table()
    table.add_column("group")
    table.add_row(escape("g\x1b[2J\x1b]0;title\x07[red]x\u202ey"))
    console().print(table)
    console().print("[bold]a\nb\x9b2J[/]")
    shown = capsys.readouterr().out
    assert "g[2J]0;title[red]xy" in shown
    assert "a\nb2J\n" in shown
    assert not {"\x1b", "\x07", "\x9b", "\u202e"} & set(shown)
