"""The errors that a user sees: one clear message, never a traceback."""


class MirrordError(Exception):
    """The base of every error that mirrord raises deliberately. Its text is meant for people."""


class ConfigError(MirrordError):
    """The user's input is wrong.

    The message names the file, the key, what was found and what is allowed. Exit code 2.
    """


class EnvironmentFault(MirrordError):
    """The user's input is correct, but the environment is not: unreachable, refused, missing, taken. Exit code 1."""


class PolicyFault(MirrordError):
    """A third-party policy gave no usable answer to one question about one name."""
