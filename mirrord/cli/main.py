"""The entry point: finds the verb, runs it, and turns every error into one message and an exit code."""

import argparse
import importlib
import os
import sys
import tempfile
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol, cast

from mirrord.cli.arguments import VerbParser, Verbs
from mirrord.model.config_reader import nearest
from mirrord.model.errors import ConfigError, MirrordError
from mirrord.model.version import version
from mirrord.shell.logs import default_directory, quiet

# By name, so that a verb loads only what it needs: `status` does not wait for Ray.
VERBS = {
    "start": "mirrord.cli.start",
    "stop": "mirrord.cli.stop",
    "status": "mirrord.cli.status",
    "lag": "mirrord.cli.lag",
    "lab": "mirrord.cli.lab",
    "ledger": "mirrord.cli.ledger",
    "apply": "mirrord.cli.apply",
    "pause": "mirrord.cli.pause",
    "resume": "mirrord.cli.resume",
    "move": "mirrord.cli.move",
    "drain": "mirrord.cli.drain",
    "seek": "mirrord.cli.seek",
    "check": "mirrord.cli.check",
    "plan": "mirrord.cli.plan",
    "topics": "mirrord.cli.topics",
    "groups": "mirrord.cli.groups",
    "translate": "mirrord.cli.translate",
    "gaps": "mirrord.cli.gaps",
    "audit": "mirrord.cli.audit",
    "repair": "mirrord.cli.repair",
    "compact": "mirrord.cli.compact",
    "rebuild": "mirrord.cli.rebuild",
    "divergence": "mirrord.cli.divergence",
    "quarantine": "mirrord.cli.quarantine",
    "convert": "mirrord.cli.convert",
}


class Verb(Protocol):
    """What a verb module offers."""

    def register(self, verbs: Verbs) -> None:
        """Adds the verb's parser."""
        ...

    def run(self, arguments: argparse.Namespace) -> int:
        """Does it; returns the exit code."""
        ...


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command line; returns the exit code, and never raises but SystemExit for `--help` and usage errors."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    name = next((word for word in arguments if not word.startswith("-")), None)
    if name is not None and name not in VERBS:
        like = nearest(name, VERBS)
        hint = f'; did you mean "{like}"?' if like else ""
        return _fail(f'no verb "{name}"{hint} (verbs: {", ".join(sorted(VERBS))})', 2)
    try:
        modules = {name: _verb(name)} if name else {each: _verb(each) for each in VERBS}
        parsed = parser(modules).parse_args(arguments)
        # A verb that runs a daemon sets up logs of its own.
        quiet()
        code = modules[parsed.verb].run(parsed)
        sys.stdout.flush()
        return code
    except ConfigError as error:
        return _fail(str(error), 2)
    except MirrordError as error:
        return _fail(str(error), 1)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The reader, such as `head`, has seen enough; what is left in the buffer must not fail at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:  # noqa: BLE001 - a user never sees a traceback: it goes to a file
        return _fail(f"internal error: {type(error).__name__}: {error}; details in {_write_traceback()}", 1)


def parser(modules: dict[str, Verb]) -> argparse.ArgumentParser:
    """The command line of these verbs."""
    top = VerbParser(prog="mirrord", description="Copies Kafka topics from one cluster to another, exactly once.")
    top.add_argument("--version", action="version", version=f"mirrord {version()}")
    verbs: Verbs = top.add_subparsers(
        dest="verb", metavar="VERB", required=True, title="verbs", parser_class=VerbParser
    )
    for module in modules.values():
        module.register(verbs)
    return top


def _verb(name: str) -> Verb:
    return cast(Verb, importlib.import_module(VERBS[name]))


def _fail(message: str, code: int) -> int:
    print(f"mirrord: {message}", file=sys.stderr)
    return code


def _write_traceback() -> Path:
    details = traceback.format_exc()
    for directory in (default_directory(), Path(tempfile.gettempdir())):
        try:
            directory.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(
                "w", encoding="utf-8", dir=directory, prefix="internal-error-", suffix=".log", delete=False
            ) as file:
                file.write(details)
            return Path(file.name)
        except OSError:
            continue
    return Path(os.devnull)


if __name__ == "__main__":
    sys.exit(main())
