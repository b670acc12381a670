"""Supervises one flow: holds its lease, assigns its lanes to replicators, and reports its status."""
