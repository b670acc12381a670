"""Feeds damaged and random bytes to everything in mirrord that decodes bytes from outside.

A decoder may return a value or raise one of its documented errors. It must end within a second, and must not use more
memory than `harness.MOST_BYTES`.
"""
