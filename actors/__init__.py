"""The Ray actors, and the only place beside `mirrord.cli.verbs.start` that imports ray.

In: a configuration and the lanes to host. Out: running lanes, and answers about them. What lanes do is decided below.
`supervisor.py` and `replicator.py` are the actors, `options.py` says how they are made, `handles.py` is the wall around
every call to one, `engine.py` is the `mirrord.supervision.fleet.engine.Engine` on Ray, `local.py` finds or starts a
Ray.
"""
