"""Processes of a run: a role's context, its process, and the supervisor of them all."""
