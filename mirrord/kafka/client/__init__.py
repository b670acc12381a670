"""Clients for brokers: connections, cluster metadata, admin requests, and readers of logs."""
