"""The entry point: runs the requested verb, and turns every error into a single message and an exit code."""

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
from mirrord.cli.printing import print_remarks
from mirrord.config.fault_text import closest_name
from mirrord.model.errors import ConfigError, MirrordError
from mirrord.model.known_secrets import mask
from mirrord.model.version import version
from mirrord.runtime.logs import default_directory, quiet
from mirrord.runtime.process_hardening import forbid_core_dumps

# The table holds names instead of modules, so that running a verb imports only what the verb needs. `status`, for
# example, does not import Ray.
VERBS = {
    "start": "mirrord.cli.verbs.start",
    "stop": "mirrord.cli.verbs.stop",
    "status": "mirrord.cli.verbs.status",
    "lag": "mirrord.cli.verbs.lag",
    "ready": "mirrord.cli.verbs.ready",
    "failover": "mirrord.cli.verbs.failover",
    "drill": "mirrord.cli.verbs.drill",
    "lab": "mirrord.cli.verbs.lab",
    "ledger": "mirrord.cli.verbs.ledger",
    "apply": "mirrord.cli.verbs.apply",
    "pause": "mirrord.cli.verbs.pause",
    "resume": "mirrord.cli.verbs.resume",
    "move": "mirrord.cli.verbs.move",
    "drain": "mirrord.cli.verbs.drain",
    "seek": "mirrord.cli.verbs.seek",
    "check": "mirrord.cli.verbs.check",
    "plan": "mirrord.cli.verbs.plan",
    "topics": "mirrord.cli.verbs.topics",
    "groups": "mirrord.cli.verbs.groups",
    "translate": "mirrord.cli.verbs.translate",
    "gaps": "mirrord.cli.verbs.gaps",
    "audit": "mirrord.cli.verbs.audit",
    "repair": "mirrord.cli.verbs.repair",
    "compact": "mirrord.cli.verbs.compact",
    "rebuild": "mirrord.cli.verbs.rebuild",
    "divergence": "mirrord.cli.verbs.divergence",
    "quarantine": "mirrord.cli.verbs.quarantine",
    "convert": "mirrord.cli.verbs.convert",
}


class VerbModule(Protocol):
    """The interface that every verb module implements."""

    def register(self, verbs: Verbs) -> None:
        """Add the verb's parser."""
        ...

    def run(self, arguments: argparse.Namespace) -> int:
        """Run the verb and return the exit code."""
        ...


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line and return the exit code. Raises only SystemExit, for `--help` and usage errors."""
    forbid_core_dumps()
    arguments = list(sys.argv[1:] if argv is None else argv)
    name = next((word for word in arguments if not word.startswith("-")), None)
    if name is not None and name not in VERBS:
        like = closest_name(name, VERBS)
        hint = f'; did you mean "{like}"?' if like else ""
        return _fail(f'no verb "{name}"{hint} (verbs: {", ".join(sorted(VERBS))})', 2)
    try:
        modules = {name: _verb(name)} if name else {each: _verb(each) for each in VERBS}
        parsed = parser(modules).parse_args(arguments)
        # A verb that runs a daemon configures its own logging.
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
        # The process that reads the pipe, such as `head`, has closed it. The rest of the buffer must not cause an error
        # at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:  # noqa: BLE001 - users never see a traceback; it is written to a file
        line = mask(f"{type(error).__name__}: {error}")
        return _fail(f"internal error: {line}; details in {_write_traceback()}", 1)


def parser(modules: dict[str, VerbModule]) -> argparse.ArgumentParser:
    """Return the command-line parser that knows the given verbs."""
    top = VerbParser(prog="mirrord", description="Copies Kafka topics from one cluster to another, exactly once.")
    top.add_argument("--version", action="version", version=f"mirrord {version()}")
    verbs: Verbs = top.add_subparsers(
        dest="verb", metavar="VERB", required=True, title="verbs", parser_class=VerbParser
    )
    for module in modules.values():
        module.register(verbs)
    return top


def _verb(name: str) -> VerbModule:
    return cast(VerbModule, importlib.import_module(VERBS[name]))


def _fail(message: str, code: int) -> int:
    # Names from a ledger or from a broker may contain control characters, which could change what the terminal shows.
    print_remarks([message])
    return code


def _write_traceback() -> Path:
    details = mask(traceback.format_exc())
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
