"""The errors that a user sees: one clear message, never a traceback."""


class MirrordError(Exception):
    """The base of every error that mirrord raises on purpose; its text is meant for people."""


class ConfigError(MirrordError):
    """What the user wrote is wrong: the file, the key, what was found, what is allowed. Exit code 2."""


class EnvironmentFault(MirrordError):
    """What the user wrote is right, but the world is not: unreachable, refused, missing, taken. Exit code 1."""


class PolicyFault(MirrordError):
    """A policy of a third party gave no answer that can be used, to one question about one name."""
