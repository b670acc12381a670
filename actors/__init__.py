"""The Ray actors. Apart from `mirrord.cli.verbs.start`, only this package imports ray.

Input: a configuration and the lanes to host. Output: running lanes, and reports about them. What lanes do is decided in
the packages that this one imports. `supervisor.py` and `replicator.py` are the actors, and `options.py` says how they
are created. `handles.py` wraps every call to an actor. `engine.py` implements `mirrord.supervision.fleet.engine.Engine`
on Ray, and `ray_connection.py` joins or starts a Ray cluster.
"""
