"""Prints the status of the flows, once or every second."""

import argparse
import contextlib
import sys
import time
from collections.abc import Callable, Iterator

import msgspec
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.segment import Segment

from mirrord.cli.arguments import load_conf
from mirrord.config.schema import Config
from mirrord.model.errors import EnvironmentFault
from mirrord.model.status import Status
from mirrord.operations.status_report import gather_status

# The width in columns of output that does not go to a terminal. Every table fits within this width, so nothing is cut
# off in a file or a pipe.
_WIDTH_COLUMNS = 180


class _PlainConsole(Console):
    """A console that prints no control characters from texts. Names of groups, for example, come from other clients of
    the clusters, and could otherwise change what the terminal shows."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        """Yield the parts of the output."""
        for segment in super().render(renderable, options):
            text, style, control = segment
            if control or text.isprintable():
                yield segment
            else:
                # The width of the text stays the same, because the layout has been computed already.
                shown = (
                    letter if letter.isprintable() or letter == "\n" else "?" * cell_len(letter) for letter in text
                )
                yield Segment("".join(shown), style)


def console(*, stderr: bool = False) -> Console:
    """Return a console with the width of the terminal, or a wide console if the output does not go to a terminal."""
    is_terminal = (sys.stderr if stderr else sys.stdout).isatty()
    return _PlainConsole(stderr=stderr) if is_terminal else _PlainConsole(stderr=stderr, width=_WIDTH_COLUMNS)


def show(arguments: argparse.Namespace, render: Callable[[Status], RenderableType]) -> int:
    """Print the status of the flows; with `--watch`, print it every second. Raises ConfigError and, if `--watch` is not
    given, EnvironmentFault."""
    config = load_conf(arguments)
    if arguments.watch:
        with contextlib.suppress(KeyboardInterrupt):
            _watch(config, arguments, render)
        return 0
    status = _gather(config, arguments.flow)
    if arguments.json:
        print(status.encode().decode())
    else:
        console().print(render(status))
    return 0


def _gather(config: Config, flow: str | None) -> Status:
    status = gather_status(config)
    if flow is None:
        return status
    return msgspec.structs.replace(status, flows=tuple(each for each in status.flows if each.name == flow))


def _watch(config: Config, arguments: argparse.Namespace, render: Callable[[Status], RenderableType]) -> None:
    answers = _answers(config, arguments.flow)
    if arguments.json:
        for answer in answers:
            document = answer.encode() if isinstance(answer, Status) else msgspec.json.encode({"error": answer})
            print(document.decode(), flush=True)
        return
    last: RenderableType = ""
    with Live(last, console=console(), auto_refresh=False) as live:
        for answer in answers:
            if isinstance(answer, Status):
                last = render(answer)
                live.update(last, refresh=True)
            else:
                live.update(Group(last, f"[red]{escape(answer)}[/]"), refresh=True)


def _answers(config: Config, flow: str | None) -> Iterator[Status | str]:
    """Yield the status every second. If it is not available, yield the reason as text."""
    while True:
        try:
            yield _gather(config, flow)
        except EnvironmentFault as fault:
            yield str(fault)
        time.sleep(1)
