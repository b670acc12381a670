"""Java's regular expressions as Python's, case by case and against Java itself."""

import contextlib
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrord.config.mm2.java_regex import python_regex

NAMES = [
    "",
    "a",
    "A",
    "ab",
    "a.b",
    "a-b",
    "a_b",
    "aa",
    "aaa",
    "orders",
    "Orders",
    "x.y",
    "xzy",
    "1",
    "a1",
    "b]",
    "a{",
    "|",
]
PATTERNS = [
    ".*",
    r"a\.b",
    r".*[\-\.]b",
    r"\Qx.y\E",
    r"\Qx.y",
    r"\p{Lower}+",
    r"\p{L}\P{Alpha}",
    r"\pL+",
    r"[\p{Upper}\d]\w*",
    "(?i)ORDERS",
    "o(?i)RDERS",
    "(?i:o)rders",
    "(?<x>a)\\k<x>",
    "a{2,3}",
    "a{2}",
    "a++",
    r"a\{",
    "[]a]+",
    "[^]a]+",
    r"b\]",
    "b]",
    r"a\z",
    "a|b",
    "(a|b)?.b",
]
JAVA = """
import java.nio.file.*; import java.util.regex.*;
public class Reference {
    public static void main(String[] arguments) throws Exception {
        var names = Files.readAllLines(Path.of(arguments[1]));
        for (String pattern : Files.readAllLines(Path.of(arguments[0]))) {
            var row = new StringBuilder();
            try { for (String name : names) row.append(Pattern.compile(pattern).matcher(name).matches() ? '1' : '0'); }
            catch (PatternSyntaxException error) { row.append("refused"); }
            System.out.println(row);
        }
    }
}
"""


@pytest.mark.skipif(shutil.which("javac") is None, reason="a JDK is the reference")
def test_java_matches_the_same(tmp_path: Path) -> None:
    (tmp_path / "Reference.java").write_text(JAVA)
    (tmp_path / "patterns").write_text("\n".join(PATTERNS) + "\n")
    (tmp_path / "names").write_text("\n".join(NAMES) + "\n")
    command = ["java", tmp_path / "Reference.java", tmp_path / "patterns", tmp_path / "names"]
    answer = subprocess.run(command, capture_output=True, text=True, check=True)
    for pattern, theirs in zip(PATTERNS, answer.stdout.splitlines(), strict=True):
        if theirs != "refused":
            translated = python_regex(pattern)
            ours = "".join("1" if re.fullmatch(translated, name) else "0" for name in NAMES)
            assert ours == theirs, pattern


@pytest.mark.parametrize(
    ("java", "python"),
    [
        (r"\Qa.b\E.*", r"a\.b.*"),
        (r"\p{Digit}", "[0-9]"),
        (r"[\p{Alpha}_]", "[a-zA-Z_]"),
        (r"\P{Upper}", "[^A-Z]"),
        ("a(?i)b", "a(?i:b)"),
        ("(?<n>a)", "(?P<n>a)"),
        ("(?<=a)b", "(?<=a)b"),
        ("a.*", "a.*"),
    ],
)
def test_what_is_translated(java: str, python: str) -> None:
    assert python_regex(java) == python


@pytest.mark.parametrize(
    ("java", "rule"),
    [
        ("a{2", "the list is split at any comma inside one"),
        ("[a-z&&[^b]]", "no class inside a class"),
        ("[a[b]]", "no class inside a class"),
        (r"\p{IsGreek}", r"no \p{IsGreek} here"),
        (r"\Ga", r"no \G, which Python does not support"),
        ("(a(?i)b)", "inside a group"),
        ("(?u)a", "of the flags"),
        ("(", "a regular expression that Python also supports"),
    ],
)
def test_what_is_refused(java: str, rule: str) -> None:
    with pytest.raises(ValueError, match=re.escape(rule)):
        python_regex(java)


@pytest.mark.filterwarnings("ignore::FutureWarning")
@given(st.text(st.sampled_from(r"ab.*+?{}2,()[]|\^$-QEpL&<>:i"), max_size=12))
def test_any_text_is_translated_or_refused(java: str) -> None:
    with contextlib.suppress(ValueError):
        re.compile(python_regex(java))
