"""How actors are made: one table, with the reasons, and their names."""

from typing import Any

NAMESPACE = "mirrord"

HEALTH = "health"
"""The concurrency group of questions about health. Ray gives each group a thread and an event loop of its own, so they
are answered while the main loop is busy or hangs."""

_COMMON: dict[str, Any] = {
    # Outlives whoever made it; the supervisor ends replicators, the foreground process the supervisor.
    "lifetime": "detached",
    "namespace": NAMESPACE,
    # A share for the scheduler, not a limit: two cores shall host a supervisor and as many replicators as there are
    # partitions. How many replicators there are is the placement's choice.
    "num_cpus": 0.01,
    # A call that was not answered may have been carried out: whoever called decides, not Ray.
    "max_task_retries": 0,
    # Room for the watch, which waits until the actor dies, beside the questions.
    "concurrency_groups": {HEALTH: 8},
    # Ray would remember each question about health, 100,000 of them, and its head grow by 1.8 MB a minute.
    "enable_task_events": False,
}

SUPERVISOR: dict[str, Any] = _COMMON | {
    # It holds nothing that is not in the ledger: a new process goes on from there.
    "max_restarts": -1,
    # It may run where no work is wanted: the head of a cluster often has no cores to give.
    "num_cpus": 0,
}

REPLICATOR: dict[str, Any] = _COMMON | {
    # A replicator's name stands in the ledger and is never used twice: the supervisor starts another one instead.
    "max_restarts": 0,
}

GROUPS: dict[str, Any] = _COMMON | {
    # As a replicator: the supervisor starts another one, which finds out everything again.
    "max_restarts": 0,
}


def supervisor_name(instance: str) -> str:
    """The name of a daemon's supervisor."""
    return f"{instance}/supervisor"
