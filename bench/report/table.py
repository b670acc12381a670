"""A table of figures, the same for the terminal and for docs/measurements.md."""

import statistics
from collections.abc import Sequence
from typing import Any, NamedTuple

from rich.table import Table as RichTable

Result = dict[str, Any]


class Table(NamedTuple):
    """A title, a head, and rows of text; the first column names the row."""

    title: str
    head: list[str]
    rows: list[list[str]]

    def for_terminal(self) -> RichTable:
        """Return the table as rich prints it."""
        table = RichTable(title=self.title, title_justify="left")
        for at, name in enumerate(self.head):
            table.add_column(name, justify="right" if at else "left")
        for row in self.rows:
            table.add_row(*row)
        return table

    def for_page(self) -> str:
        """Return the table as Markdown."""
        lines = [self.head, ["---", *["---:"] * (len(self.head) - 1)], *self.rows]
        return f"{self.title}:\n\n" + "".join(f"| {' | '.join(line)} |\n" for line in lines)


def least_median_most(values: Sequence[float], unit: str) -> str:
    """Return these three values in one cell."""
    return f"{min(values):.0f}, {statistics.median(values):.0f}, {max(values):.0f}{unit}"
