"""Command-line arguments that several verbs share."""

import argparse
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NoReturn

from mirrord.config.fault_text import closest_name
from mirrord.config.loader import load_file
from mirrord.config.policy_checks import PolicyCheck, Unjudged
from mirrord.config.schema import Config

if TYPE_CHECKING:
    Verbs = argparse._SubParsersAction[argparse.ArgumentParser]  # pyright: ignore[reportPrivateUsage]
    """The return type of `ArgumentParser.add_subparsers`, for which argparse has no public name."""
else:
    Verbs = object

UNJUDGED = Unjudged()


class VerbParser(argparse.ArgumentParser):
    """A parser that accepts positional arguments and options in any order, and suggests the closest match for an
    unknown option or choice.

    Before Python 3.12.7, argparse cannot parse a positional argument with a default, such as CONF, after an option
    (Python issue 59317). It assigns the default when it reaches the option, and then rejects the actual argument.
    """

    _within = False
    _given: Sequence[str] = ()

    def parse_known_args(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Parse the arguments like argparse, but accept positional arguments and options in any order. Exit if any
        argument is unknown."""
        into = argparse.Namespace() if namespace is None else namespace
        if self._within:
            return super().parse_known_args(args, into)
        self._given = () if args is None else tuple(args)
        if self._subparsers is not None:
            known = super().parse_known_args(args, into)
        else:
            self._within = True
            try:
                known = self.parse_known_intermixed_args(args, into)
            finally:
                self._within = False
        if known[1]:
            self.error(f"unrecognized arguments: {' '.join(known[1])}")
        return known

    def error(self, message: str) -> NoReturn:
        """Report an error and exit, like argparse. If there are unknown options, report only those, because they
        usually cause the other errors."""
        strange = list(self._strange())
        super().error("; ".join(strange) if strange else message)

    def _strange(self) -> Iterator[str]:
        """Yield a message for each unknown option. A word that looks like an option is checked even if it is in the
        position of a value, because argparse never accepts such a word as a value."""
        known = {option.lstrip("-"): option for option in self._option_string_actions}
        for word in self._given:
            if word == "--" or (self._subparsers is not None and not word.startswith("-")):
                return  # the rest contains no options, or belongs to the verb
            name = word.partition("=")[0]
            if not re.match(r"--?[A-Za-z]", name) or " " in name or name in self._option_string_actions:
                continue
            like = closest_name(name.lstrip("-"), known)
            yield f'no option "{name}"' + (f'; did you mean "{known[like]}"?' if like else "")

    def _check_value(self, action: argparse.Action, value: object) -> None:
        """Raise ArgumentError for a value that is not among the choices. Unlike argparse, suggest the closest
        choice."""
        choices = [str(each) for each in action.choices or ()]
        if choices and str(value) not in choices:
            like = closest_name(str(value), choices)
            hint = f'; did you mean "{like}"?' if like else ""
            raise argparse.ArgumentError(action, f'found "{value}"; allowed: {", ".join(choices)}{hint}')


def add_verb(verbs: Verbs, name: str, summary: str, epilog: str = "") -> argparse.ArgumentParser:
    """Add a parser for one verb and return it. `summary` is one sentence. `epilog` may contain examples, so its line
    breaks are kept."""
    return verbs.add_parser(
        name,
        help=summary[0].lower() + summary[1:].rstrip("."),
        description=summary,
        epilog=epilog or None,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )


def add_conf(parser: argparse.ArgumentParser) -> None:
    """Add CONF, the positional argument that names the configuration file."""
    what = "the configuration: conf.toml, or a file for MirrorMaker 2 that ends in .properties"
    parser.add_argument("conf", metavar="CONF", nargs="?", default="conf.toml", help=what)


def add_clusters(parser: argparse.ArgumentParser) -> None:
    """Add `--clusters`, which selects the flows whose target is one of the named clusters."""
    parser.add_argument(
        "--clusters",
        metavar="ALIAS",
        nargs="+",
        action="extend",
        help="only flows into these clusters, which may be separated by commas",
    )


def add_flow(parser: argparse.ArgumentParser) -> None:
    """Add `--flow`, which selects one flow instead of all flows."""
    parser.add_argument("--flow", metavar="NAME", help="only this flow")


def add_some_flows(parser: argparse.ArgumentParser) -> None:
    """Add `--flow` and `--clusters`, which select some flows instead of all flows. `some_flows` applies the
    selection."""
    parser.add_argument("--flow", metavar="NAME", action="append", dest="flows", help="only this flow; may be repeated")
    add_clusters(parser)


def some_flows(config: Config, arguments: argparse.Namespace) -> Config:
    """Return the configuration with only the flows that the options of `add_some_flows` select. Raises ConfigError if
    they select no flow."""
    return config.chosen(arguments.clusters or (), arguments.flows or ())


def offset(word: str) -> int:
    """Parse an offset. Used as the `type` of an argparse argument. Raises ArgumentTypeError."""
    if not (word.isascii() and word.isdecimal()):
        raise argparse.ArgumentTypeError(f'found "{word}"; allowed: an offset, 0 or more')
    return int(word)


def add_output(parser: argparse.ArgumentParser) -> None:
    """Add `--json`, which selects the output format, and `--watch`, which keeps refreshing the output."""
    parser.add_argument("--json", action="store_true", help="print the status document instead of tables")
    parser.add_argument("--watch", action="store_true", help="refresh every second, until Ctrl-C")


def load_conf(arguments: argparse.Namespace, policies: PolicyCheck = UNJUDGED) -> Config:
    """Load the configuration file that CONF names. By default, policies are not loaded. Verbs that use policies pass a
    `PolicyCheck` that loads them.

    Raises ConfigError if the file is invalid or if `--flow` names a flow that is not in the file.
    """
    config = load_file(arguments.conf, policies).config
    if getattr(arguments, "flow", None) is not None:
        config.flow(arguments.flow)
    return config
