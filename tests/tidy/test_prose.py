"""A ratchet for prose: words that plain technical English rarely needs may only become fewer."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MARKERS = re.compile(
    r"\b(told|tells?|telling|stands?|stood|somebody|nobody|whoever|anew|once more|for ever|as ever|beside|behind"
    r"|in front of|of (?:its|our|their) own|goes on|go on|went on|is no more|so many|so much|so long|let pass|left out"
    r"|kept in step|carried over|under way|at present|as far as|no longer than for)\b",
    re.IGNORECASE,
)
INVERTED = re.compile(
    r"(?:^|[.;:]\s+)(?:Is|Are|Does|Do|Did|Has|Have|Died|Takes|Runs|Waits)\s[^.?]{3,80},\s", re.MULTILINE
)
"""A condition without "if": "Is it full, wait"."""
CODE = re.compile(r"```.*?```|`[^`]*`|\|", re.DOTALL)
MOST = {"product": 0.5, "docs": 0.35}
"""Markers per 1,000 words. Lower these figures after prose has been rewritten; never raise them."""


def paths(part: str) -> list[Path]:
    if part == "docs":
        return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [path for package in ("mirrord", "actors", "policies") for path in sorted((ROOT / package).rglob("*.py"))]


def prose(path: Path) -> Iterator[str]:
    """Docstrings and comments of a module, or the text of a page without its code."""
    text = path.read_text()
    if path.suffix == ".md":
        yield CODE.sub(" ", text)
        return
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.value.value
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT and "noqa" not in token.string:
            yield token.string.lstrip("# ")


@pytest.mark.parametrize("part", list(MOST))
def test_prose_gets_plainer(part: str) -> None:
    texts = [text for path in paths(part) for text in prose(path)]
    words = sum(len(text.split()) for text in texts)
    found = sum(len(MARKERS.findall(text)) + len(INVERTED.findall(text)) for text in texts)
    assert 1000 * found / words <= MOST[part]
