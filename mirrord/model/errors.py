"""The errors that a user sees. A command prints only the message of such an error, without a traceback."""

from mirrord.model.known_secrets import mask


class MirrordError(Exception):
    """Base class of all errors that mirrord raises deliberately. The text is written for users.

    Secrets are masked in it, because the message of an error that a library or a policy has raised may be part of it.
    """

    def __str__(self) -> str:
        return mask(super().__str__())


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


def internal_error(error: BaseException) -> str:
    """Return one line for operators about an error that mirrord has not expected. The log contains its traceback."""
    return mask(f"internal error: {error!r}")
