"""Connections to brokers, cluster metadata, admin requests and readers."""
