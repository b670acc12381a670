"""The Ray actors. Apart from `mirrord.cli.verbs.start`, only this package imports ray.

The package is given a configuration and the lanes to host. It runs these lanes and reports on them. The lanes' logic is
in the packages that this one imports. `supervisor.py`, `replicator.py` and `groups.py` contain the actors, and
`options.py` contains the options with which Ray creates each kind of actor. `handles.py` wraps every call to an actor.
`engine.py` implements `mirrord.supervision.fleet.engine.Engine` on Ray, and `ray_connection.py` joins or starts a Ray
cluster.
"""
