"""The errors that are shown to a user. Each of them is one clear message without a traceback."""


class MirrordError(Exception):
    """Base class of all errors that mirrord raises deliberately. The text is meant for people."""


class ConfigError(MirrordError):
    """Raised when the user's input is wrong.

    The message names the file, the key, the value that was found and the values that are allowed. The command ends with
    exit code 2.
    """


class EnvironmentFault(MirrordError):
    """Raised when the user's input is correct, but the environment prevents the operation: for example, a cluster
    cannot be reached, a request is refused, a topic is missing or a port is taken. The command ends with exit code
    1."""


class PolicyFault(MirrordError):
    """Raised when a user's policy fails, or returns something unusable, for one name."""
