"""Runs that learn while faults are injected, and runs that last."""
