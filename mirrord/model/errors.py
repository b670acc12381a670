"""The errors that a user sees. A command prints only the message of such an error, without a traceback."""


class MirrordError(Exception):
    """Base class of all errors that mirrord raises deliberately. The text is written for users."""


class ConfigError(MirrordError):
    """Raised when the user's input is invalid.

    The message names the file, the key, the current value and the allowed values. The command exits with code 2.
    """


class EnvironmentFault(MirrordError):
    """Raised when the user's input is correct, but the environment prevents the operation. For example, a cluster
    cannot be reached, a request is refused, a topic is missing, or a port is taken. The command exits with code 1."""


class PolicyFault(MirrordError):
    """Raised when a policy (code that a user supplies, such as a naming rule or a record filter) raises an exception or
    returns an invalid result. The fault concerns only the name or record for which the policy was called."""


class PolicyUnusable(PolicyFault):
    """Raised when a process calls a policy that it cannot load. The fault concerns every name or record, and does not
    show what the policy returns in a process that can load it."""
