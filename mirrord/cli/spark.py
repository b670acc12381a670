"""Command-line arguments shared by the verbs that run Spark jobs."""

import argparse
import os
import re

from mirrord.config.jobs import MASTER_RULE, SUBMITTED, SparkSettings, check_master
from mirrord.config.value_parsers import regex
from mirrord.model.errors import ConfigError

_SETTING = re.compile(r"(spark\.[A-Za-z0-9_.]+)=(.*)")


def add_spark(parser: argparse.ArgumentParser) -> None:
    """Add `--topics`, which selects source topics, and `--spark`, which sets Spark properties."""
    parser.add_argument(
        "--topics", metavar="REGEX", action="append", default=[], help="only source topics that match; may be repeated"
    )
    parser.add_argument(
        "--spark",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="a setting of Spark, in addition to those in the file; may be repeated",
    )


def check_topics(arguments: argparse.Namespace) -> None:
    """Raise ConfigError if a pattern in `--topics` is not a valid regex, or could take too long for some names."""
    for pattern in arguments.topics:
        try:
            regex(pattern)
        except ValueError as error:
            raise ConfigError(f'--topics: found "{pattern}"; allowed: {error}') from None


def spark_settings(arguments: argparse.Namespace, configured: SparkSettings) -> SparkSettings:
    """Return the Spark properties in the file, as `configured`, and those on the command line, which take precedence.
    If this command is run through spark-submit, which has its own settings, those in the file are not used. Raises
    ConfigError.
    """
    settings = {} if SUBMITTED in os.environ else dict(configured)
    for given in arguments.spark:
        match = _SETTING.fullmatch(given)
        if match is None:
            raise ConfigError(f'--spark: found "{given}"; allowed: a setting such as spark.master=spark://host:7077')
        settings[match[1]] = match[2]
    try:
        check_master(settings)
    except ValueError:
        found = settings["spark.master"]
        raise ConfigError(f'--spark spark.master: found "{found}"; allowed: {MASTER_RULE}') from None
    return settings
