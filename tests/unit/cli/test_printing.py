"""Lines with texts from outside."""

import pytest

from mirrord.cli.printing import print_lines, print_remarks


def test_control_characters_are_not_printed(capsys: pytest.CaptureFixture[str]) -> None:
    print_lines(["group \x1b[2Jx is behind", "two\nlines", "tab\tand \u202e"])
    print_remarks(["\x07bell"])
    output, errors = capsys.readouterr()
    assert output == "group ?[2Jx is behind\ntwo\nlines\ntab?and ?\n"
    assert errors == "mirrord: ?bell\n"
