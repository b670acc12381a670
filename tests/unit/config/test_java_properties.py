"""The syntax of properties files, case by case and against Java itself."""

import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrord.config.java_properties import decode, parse, split_list
from mirrord.model.errors import ConfigError

JAVA = """
import java.io.*; import java.nio.file.*; import java.util.*; import java.nio.charset.StandardCharsets;
public class Reference {
    static String hex(String text) { return HexFormat.of().formatHex(text.getBytes(StandardCharsets.UTF_16BE)); }
    public static void main(String[] arguments) throws Exception {
        var out = new PrintStream(System.out, true, "UTF-8");
        for (String line : Files.readAllLines(Path.of(arguments[0]))) {
            var text = new String(HexFormat.of().parseHex(line), StandardCharsets.UTF_16BE);
            var properties = new Properties();
            try { properties.load(new StringReader(text)); }
            catch (IllegalArgumentException error) { out.println("refused"); continue; }
            var pairs = new TreeMap<String, String>();
            properties.forEach((key, value) -> pairs.put(hex((String) key), hex((String) value)));
            var row = new StringJoiner(" ");
            pairs.forEach((key, value) -> row.add(key + "=" + value));
            out.println(row);
        }
    }
}
"""


def pairs(text: str) -> dict[str, str]:
    return {entry.key: entry.value for entry in parse(text, "file")}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=b", {"a": "b"}),
        ("  a = b  ", {"a": "b  "}),
        ("a:b\nc d\ne\tf\ng", {"a": "b", "c": "d", "e": "f", "g": ""}),
        ("a = = b", {"a": "= b"}),
        ("a:=b", {"a": "=b"}),
        ("A->B.enabled = true", {"A->B.enabled": "true"}),
        ("# c\n! c\n  # c\n\na=b # no comment", {"a": "b # no comment"}),
        ("topics = a, \\\n    b,\\\n\tc", {"topics": "a, b,c"}),
        ("a = b\\\\\nc = d", {"a": "b\\", "c": "d"}),
        ("a = b \\\r\n  c\rd = e", {"a": "b c", "d": "e"}),
        ("a = \\\n\nb = c", {"a": "", "b": "c"}),
        ("a = x\\\n# no comment", {"a": "x# no comment"}),
        ("\\\n# a comment\na=b", {"a": "b"}),
        (r"a\ b\:c\=d = e", {"a b:c=d": "e"}),
        (r"a = \t\n\q\\ \u00e9\uD83D\uDE00", {"a": "\t\nq\\ é😀"}),
        (r"jaas = P required u=\"x\";", {"jaas": 'P required u="x";'}),
        ("a = b\na = c", {"a": "c"}),
        ("a = b\\", {"a": "b"}),
        ("\\", {"": ""}),
        ("\\\n", {"": ""}),
        ("\\\r\n", {}),
        ("\\\n# a comment", {}),
        ("", {}),
    ],
)
def test_what_a_text_holds(text: str, expected: dict[str, str]) -> None:
    assert pairs(text) == expected


def test_an_entry_knows_its_line() -> None:
    found = parse("# one\n\na = b, \\\n  c\n\rd = e\n", "file")
    assert [(entry.key, entry.line) for entry in found] == [("a", 3), ("d", 6)]


def test_a_malformed_escape_is_refused_with_its_line() -> None:
    with pytest.raises(ConfigError, match=r"mm2.properties:2: \\u00g1 is not a character; allowed: "):
        parse("a = b\nc = \\u00g1", "mm2.properties")


@pytest.mark.parametrize(
    ("value", "items"),
    [("a, b ,\tc", ("a", "b", "c")), (" a ", ("a",)), ("", ()), (" , ", ()), ("a,,b,", ("a", "b"))],
)
def test_comma_lists(value: str, items: tuple[str, ...]) -> None:
    assert split_list(value) == items


def test_files_in_both_encodings() -> None:
    assert decode("é".encode()) == "é"
    assert decode("é".encode("iso-8859-1")) == "é"


TEXTS = st.text(st.sampled_from("ab=: \t\f\\\n\r#!u0041é,x") | st.characters(codec="utf-8"), max_size=40)


@given(TEXTS)
def test_any_text(text: str) -> None:
    try:
        found = parse(text, "file")
    except ConfigError:
        return
    assert [entry.line for entry in found] == sorted(entry.line for entry in found)


@pytest.mark.skipif(shutil.which("javac") is None, reason="a JDK is the reference")
def test_java_reads_the_same(tmp_path: Path) -> None:
    texts: list[str] = []

    @given(TEXTS)
    def collect(text: str) -> None:
        texts.append(text)

    collect()
    (tmp_path / "Reference.java").write_text(JAVA)
    (tmp_path / "texts").write_text("\n".join(text.encode("utf-16-be").hex() for text in texts) + "\n")
    answer = subprocess.run(
        ["java", "-Xshare:auto", str(tmp_path / "Reference.java"), str(tmp_path / "texts")],
        capture_output=True,
        text=True,
        check=True,
    )
    for text, row in zip(texts, answer.stdout.splitlines(), strict=True):
        try:
            ours = pairs(text)
        except ConfigError:
            assert row == "refused", repr(text)
            continue
        found = dict(pair.split("=") for pair in row.split())
        theirs = {
            bytes.fromhex(key).decode("utf-16-be", "replace"): bytes.fromhex(value).decode("utf-16-be", "replace")
            for key, value in found.items()
        }
        assert ours == theirs, repr(text)
