"""Generates docs/reference/cli.md from the help text of every command."""

import contextlib
import io
import os
import sys
from collections.abc import Mapping

from mirrord.cli.main import VERBS, main

COLUMNS = "100"
"""Width of the help texts in columns, the same as in tests/golden/help."""

_HEAD = """\
# Commands

Generated from the help texts of `mirrord` (`python -m mirrord.cli.reference_page`). Do not edit this page.

All commands have the same exit codes. 0: success. 1: failure. 2: incorrect usage or invalid configuration. 3: a
difference was found. [Change a running mirror](../how-to/operator-commands.md) shows how the commands are used.

"""


def page(texts: Mapping[str, str]) -> str:
    """Return the text of docs/reference/cli.md. `texts` maps verbs to help texts, in order; an empty name means
    `mirrord` itself."""
    names = {verb: f"mirrord {verb}".strip() for verb in texts}
    contents = ", ".join(f"[{verb}](#{name.replace(' ', '-')})" for verb, name in names.items() if verb)
    parts = [f"## {names[verb]}\n\n```text\n{text.rstrip()}\n```\n" for verb, text in texts.items()]
    return "\n".join([f"{_HEAD}{contents}\n", *parts])


def help_texts() -> dict[str, str]:
    """Return the help text of every verb, as `mirrord VERB --help` prints it, and the help text of `mirrord` itself."""
    os.environ["COLUMNS"] = COLUMNS
    return {verb: _help_text(verb) for verb in ("", *VERBS)}


def _help_text(verb: str) -> str:
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.suppress(SystemExit):
        main([*([verb] if verb else []), "--help"])
    return out.getvalue()


if __name__ == "__main__":
    sys.stdout.write(page(help_texts()))
