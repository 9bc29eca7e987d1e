"""Suites of tasks, run with several seeds and laid over published curves."""
