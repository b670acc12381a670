"""The options with which Ray creates each kind of actor. A comment explains each option."""

from typing import Any

NAMESPACE = "mirrord"

HEALTH = "health"
"""The concurrency group for health checks. Ray gives each group a separate thread and event loop, so health checks are
answered even while the main loop is busy or hangs."""

_COMMON: dict[str, Any] = {
    # Actors outlive their creator. The supervisor ends replicators, and the foreground process ends the supervisor.
    "lifetime": "detached",
    "namespace": NAMESPACE,
    # Ray's scheduler counts this share but does not enforce it. The share is small, so that even a node with two cores
    # accepts a supervisor and one replicator per partition. mirrord itself decides how many replicators it starts.
    "num_cpus": 0.01,
    # Ray must not retry a call that was not answered, because the actor may have executed it. The caller decides
    # whether to retry it.
    "max_task_retries": 0,
    # Leaves room for health checks in addition to the call to `watch`, which waits until the actor dies.
    "concurrency_groups": {HEALTH: 8},
    # Otherwise Ray would store an event for every health check, up to 100,000 events, and the memory usage of Ray's
    # head would grow by 1.8 MB per minute.
    "enable_task_events": False,
}

SUPERVISOR: dict[str, Any] = _COMMON | {
    # All state of the supervisor is also in the ledger, so a new process can resume from the ledger.
    "max_restarts": -1,
    # The supervisor may run on a node that offers no cores to actors. The head node of a cluster is often such a node.
    "num_cpus": 0,
}

REPLICATOR: dict[str, Any] = _COMMON | {
    # Ray does not restart a replicator, because its name is recorded in the ledger and is never reused. The supervisor
    # starts another replicator instead.
    "max_restarts": 0,
}

GROUPS: dict[str, Any] = _COMMON | {
    # Ray does not restart a group follower. The supervisor starts another one, which rebuilds the state.
    "max_restarts": 0,
}


def supervisor_name(instance: str) -> str:
    """Return the name of this instance's supervisor actor."""
    return f"{instance}/supervisor"
