"""Runs scheduled audits and compactions of a flow."""
