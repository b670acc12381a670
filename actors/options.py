"""The options with which Ray creates each kind of actor, with the reason for each option, and the supervisor's name."""

from typing import Any

NAMESPACE = "mirrord"

HEALTH = "health"
"""The concurrency group of health checks. Ray gives each group a separate thread and event loop, so health checks are
answered even while the main loop is busy or hangs."""

_COMMON: dict[str, Any] = {
    # Actors outlive their creator. The supervisor ends replicators, and the foreground process ends the supervisor.
    "lifetime": "detached",
    "namespace": NAMESPACE,
    # A share for the scheduler, not a limit: two cores must be able to host a supervisor and as many replicators as
    # there are partitions. The placement decides how many replicators there are.
    "num_cpus": 0.01,
    # A call that was not answered may have been executed. The caller decides what to do, not Ray.
    "max_task_retries": 0,
    # Leaves room for health checks in addition to the watch call, which waits until the actor dies.
    "concurrency_groups": {HEALTH: 8},
    # Ray would remember every health check, up to 100,000, and its head would grow by 1.8 MB a minute.
    "enable_task_events": False,
}

SUPERVISOR: dict[str, Any] = _COMMON | {
    # The supervisor holds nothing that is not in the ledger, so a new process resumes from there.
    "max_restarts": -1,
    # The supervisor may run where no work should run: the head of a cluster often has no cores to offer.
    "num_cpus": 0,
}

REPLICATOR: dict[str, Any] = _COMMON | {
    # A replicator's name is recorded in the ledger and is never used twice. The supervisor starts another one instead.
    "max_restarts": 0,
}

GROUPS: dict[str, Any] = _COMMON | {
    # Like a replicator: the supervisor starts another one, which rebuilds its state.
    "max_restarts": 0,
}


def supervisor_name(instance: str) -> str:
    """Return the name of a daemon's supervisor."""
    return f"{instance}/supervisor"
