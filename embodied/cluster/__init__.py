"""Roles of a run on the machines of a cluster."""
