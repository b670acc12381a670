"""Writes a text file atomically: the file appears with its entire content or not at all."""

from pathlib import Path

from mirrord.model.errors import EnvironmentFault


def write_whole(path: Path, text: str) -> None:
    """Write a text file atomically: it appears with its entire content or not at all. Raises EnvironmentFault."""
    unfinished = path.with_name(f"{path.name}.unfinished")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished.write_text(text, encoding="utf-8")
        unfinished.replace(path)
    except OSError as error:
        raise EnvironmentFault(f"{path} cannot be written: {error.strerror}") from error
