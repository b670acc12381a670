"""The Ray actors. Apart from `mirrord.cli.verbs.start`, only this package imports ray.

Input: a configuration and the lanes to host. Output: running lanes, and answers about them. The packages below decide
what lanes do. `supervisor.py` and `replicator.py` are the actors, and `options.py` says how they are created.
`handles.py` wraps every call to an actor. `engine.py` implements `mirrord.supervision.fleet.engine.Engine` on Ray, and
`local.py` finds or starts a Ray cluster.
"""
