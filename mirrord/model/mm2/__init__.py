"""MirrorMaker 2's file, mm2.properties, as mirrord's own configuration.

In comes the text of a file for MirrorMaker 2's dedicated mode, out go a `Config` and notices for people: what has no
meaning here and why, what is unknown and what it may have been. `names` is the one table that says what each property
becomes; `place` tells the parts of a key; `source` finds values and collects faults; `flows`, `security` and `patterns`
translate; `translate` is the door. MirrorMaker 2's defaults hold, except where mirrord's are stronger.
"""
