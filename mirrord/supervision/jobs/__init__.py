"""Audits and compactions that run by schedule."""
