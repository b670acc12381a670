"""Arguments that several verbs share."""

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from mirrord.model.config import Config
from mirrord.model.config_file import load_file
from mirrord.model.config_policies import PolicyCheck, Unjudged

if TYPE_CHECKING:
    Verbs = argparse._SubParsersAction[argparse.ArgumentParser]  # pyright: ignore[reportPrivateUsage]
    """What `add_subparsers` returns; argparse has no public name for it."""
else:
    Verbs = object

UNJUDGED = Unjudged()


class VerbParser(argparse.ArgumentParser):
    """Takes words and options in any order.

    argparse fills all words that it can before the first option, CONF with its default, and then knows no place for the
    one that follows (Python issue 59317, before 3.12.7).
    """

    _within = False

    def parse_known_args(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """As in argparse."""
        into = argparse.Namespace() if namespace is None else namespace
        if self._within or self._subparsers is not None:
            return super().parse_known_args(args, into)
        self._within = True
        try:
            return self.parse_known_intermixed_args(args, into)
        finally:
            self._within = False


def add_verb(verbs: Verbs, name: str, summary: str, epilog: str = "") -> argparse.ArgumentParser:
    """A parser for one verb. `summary` is one sentence; `epilog` may hold examples, which keep their lines."""
    return verbs.add_parser(
        name,
        help=summary[0].lower() + summary[1:].rstrip("."),
        description=summary,
        epilog=epilog or None,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )


def add_conf(parser: argparse.ArgumentParser) -> None:
    """The configuration file."""
    what = "the configuration: conf.toml, or a file for MirrorMaker 2 that ends in .properties"
    parser.add_argument("conf", metavar="CONF", nargs="?", default="conf.toml", help=what)


def add_clusters(parser: argparse.ArgumentParser) -> None:
    """Only the flows into some clusters."""
    parser.add_argument(
        "--clusters",
        metavar="ALIAS",
        nargs="+",
        action="extend",
        help="only flows whose target is one of these (a list with commas, too)",
    )


def add_flow(parser: argparse.ArgumentParser) -> None:
    """One flow instead of all."""
    parser.add_argument("--flow", metavar="NAME", help="only this flow")


def add_some_flows(parser: argparse.ArgumentParser) -> None:
    """Some flows instead of all: `--flow`, `--clusters`; `some_flows` takes them."""
    parser.add_argument("--flow", metavar="NAME", action="append", dest="flows", help="only this flow; may be repeated")
    add_clusters(parser)


def some_flows(config: Config, arguments: argparse.Namespace) -> Config:
    """The configuration with the flows that `add_some_flows` chose. Raises ConfigError when there is none of them."""
    if arguments.clusters:
        config = config.only_targets(arguments.clusters)
    if arguments.flows:
        flows = tuple(config.flow(name) for name in dict.fromkeys(arguments.flows))
        config = config.only(flows)
    return config


def offset(word: str) -> int:
    """What argparse makes an offset of. Raises ArgumentTypeError."""
    if not (word.isascii() and word.isdecimal()):
        raise argparse.ArgumentTypeError(f'found "{word}"; allowed: an offset, 0 or more')
    return int(word)


def add_output(parser: argparse.ArgumentParser) -> None:
    """How an answer is printed."""
    parser.add_argument("--json", action="store_true", help="print the status document instead of tables")
    parser.add_argument("--watch", action="store_true", help="ask again each second, until Ctrl-C")


def load_conf(arguments: argparse.Namespace, policies: PolicyCheck = UNJUDGED) -> Config:
    """The configuration that `add_conf` named; `policies` is for verbs that ask policies.

    Raises ConfigError, also when `--flow` names none of its flows.
    """
    config = load_file(arguments.conf, policies).config
    if getattr(arguments, "flow", None) is not None:
        config.flow(arguments.flow)
    return config
