"""Whole runs, with real processes."""
