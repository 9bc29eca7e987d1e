"""Settings of all tests."""

import os

import pytest

# Helpers whose assertions should say what they compared.
pytest.register_assert_rewrite("tests.e2e.command", "tests.e2e.watching")

QUICK = "--xla_backend_optimization_level=0"


def pytest_configure(config):
    """Let `make test` compile fast rather than run fast, also in child processes.

    Compiling takes most of its time. What is slow, and the golden numbers once more,
    run in CI with the programs that a user gets.
    """
    if config.option.markexpr == "not slow":
        os.environ.setdefault("XLA_FLAGS", QUICK)
