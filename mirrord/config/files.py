"""Read a configuration file: a conf.toml, or a file for MirrorMaker 2 if its name ends in `.properties`."""

from pathlib import Path
from typing import NamedTuple

from mirrord.config.java_properties import decode
from mirrord.config.loader import load
from mirrord.config.mm2.translate import translate
from mirrord.config.policy_checks import BUILT_IN, PolicyCheck
from mirrord.config.schema import Config
from mirrord.model.errors import ConfigError


class Loaded(NamedTuple):
    """A configuration, and the remarks about its file: one line each."""

    config: Config
    remarks: tuple[str, ...] = ()


def load_file(path: str, policies: PolicyCheck = BUILT_IN) -> Loaded:
    """Return the configuration of a file. `policies` judges policies that are not built in.

    Raises ConfigError if the file cannot be read or has any fault.
    """
    if not path.endswith(".properties"):
        return Loaded(load(path, policies))
    try:
        text = decode(Path(path).read_bytes())
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file; name a file for MirrorMaker 2, or a conf.toml") from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    translated = translate(text, path)
    # As for Java, relative paths are resolved against the working directory of the command.
    return Loaded(translated.config.below(Path.cwd()), tuple(notice.of(path) for notice in translated.notices))
