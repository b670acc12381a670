"""`mirrord translate`: converts an offset in the source topic or the target topic to the offset at which a reader
resumes in the other topic."""

import argparse

import msgspec

from mirrord.cli.arguments import Verbs, add_verb, load_conf
from mirrord.config.value_parsers import start_point
from mirrord.groups.offset_translation_queries import format_time
from mirrord.model.errors import ConfigError
from mirrord.translate import Answer, Question, translate

_EPILOG = """OFFSET is the next offset that a reader would read. @TIME, such as @2026-11-21T22:00:00Z or @1795298400000
(ms since 1970), means the first record whose timestamp is at or after this time. The answer comes from the target
cluster alone, and no daemon needs to be running. If a time is given without --reverse, the source is asked for the
offset of this time. Exit code 1: the offset cannot be translated.

  mirrord translate conf.toml eu-us orders 3 120
  mirrord translate conf.toml eu-us eu.orders 3 98 --reverse
  mirrord translate conf.toml eu-us orders 3 @2026-11-21T22:00:00Z --json"""

_TIME_RULE = "@ and a time with its zone, such as @2026-01-31T12:00:00Z, or @ and epoch milliseconds"


def register(verbs: Verbs) -> None:
    """Add the parser for `mirrord translate`."""
    parser = add_verb(verbs, "translate", "Show where a reader would resume on the other cluster.", _EPILOG)
    what = "the configuration: conf.toml, or a file for MirrorMaker 2 that ends in .properties"
    parser.add_argument("conf", metavar="CONF", help=what)
    parser.add_argument("flow", metavar="FLOW", help="the flow's name, such as eu-us")
    parser.add_argument(
        "topic", metavar="TOPIC", help="name of the topic on the source or, with --reverse, on the target"
    )
    parser.add_argument("partition", metavar="PARTITION", type=int, help="number of the partition")
    parser.add_argument("offset", metavar="OFFSET|@TIME", help="an offset, or a time")
    parser.add_argument("--reverse", action="store_true", help="translate from the target back to the source")
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def run(arguments: argparse.Namespace) -> int:
    """Print the translated offset, and return the exit code. Raises ConfigError or EnvironmentFault."""
    config = load_conf(arguments)
    answer = translate(config, _question(arguments))
    print(msgspec.json.encode(answer).decode() if arguments.json else _lines(answer))
    return 0 if answer.offset is not None else 1


def _question(arguments: argparse.Namespace) -> Question:
    given: str = arguments.offset
    offset = time_ms = None
    if given.startswith("@"):
        text = given[1:]
        try:
            moment = start_point(int(text) if text.isdecimal() else text)
        except ValueError:
            moment = ""
        if not isinstance(moment, int):
            raise ConfigError(f'"{given}" is not a time; allowed: {_TIME_RULE}')
        time_ms = moment
    elif given.isascii() and given.isdecimal() and int(given) < 1 << 63:
        offset = int(given)
    else:
        raise ConfigError(f'"{given}" is not an offset; allowed: a whole number from 0 on, or {_TIME_RULE}')
    return Question(
        flow=arguments.flow,
        topic=arguments.topic,
        partition=arguments.partition,
        offset=offset,
        time_ms=time_ms,
        reverse=arguments.reverse,
    )


def _lines(answer: Answer) -> str:
    when = f", of {format_time(answer.time_ms)}" if answer.time_ms is not None else ""
    return f"offset {answer.asked} of {answer.here}{when}: {answer.line}"
