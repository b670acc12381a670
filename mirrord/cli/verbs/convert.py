"""`mirrord convert`: prints the conf.toml that is equivalent to a MirrorMaker 2 configuration file."""

import argparse

from mirrord.cli.arguments import Verbs, add_clusters, add_verb
from mirrord.config.loader import load_file
from mirrord.config.writer import conf_toml

_EPILOG = """Comments at the top of the output list the settings that mirrord does not need or does not know, each with
the reason. Secrets are not copied: the printed configuration refers to where they are stored, including FILE itself.

  mirrord convert mm2.properties > conf.toml"""


def register(verbs: Verbs) -> None:
    """Add the parser for `mirrord convert`."""
    parser = add_verb(verbs, "convert", "Print a conf.toml that is equivalent to an mm2.properties file.", _EPILOG)
    parser.add_argument("file", metavar="FILE", help="the configuration file for MirrorMaker 2 (mm2.properties)")
    add_clusters(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the converted configuration. Raises ConfigError."""
    config, remarks = load_file(arguments.file)
    if arguments.clusters:
        config = config.only_targets(arguments.clusters)
    print(conf_toml(config, [f"From {arguments.file}, by mirrord convert.", *remarks]), end="")
    return 0
