"""Runs the scheduled audits and compactions of a flow."""
