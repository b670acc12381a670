"""The errors that a user sees. Each error is one clear message without a traceback."""


class MirrordError(Exception):
    """Base class of all errors that mirrord raises deliberately. The text is written for users."""


class ConfigError(MirrordError):
    """Raised when the user's input is wrong.

    The message contains the file, the key, the current value and the allowed values. The command then exits with code
    2.
    """


class EnvironmentFault(MirrordError):
    """Raised when the user's input is correct, but the environment prevents the operation. For example, a cluster
    cannot be reached, a request is refused, a topic is missing, or a port is taken. The command then exits with code
    1."""


class PolicyFault(MirrordError):
    """Raised when a user's policy fails for a name, or returns an invalid result."""
