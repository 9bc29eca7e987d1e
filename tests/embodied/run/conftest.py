"""A role's context."""

import pytest

from embodied.process.context import Context


@pytest.fixture
def ctx():
    """The context of a role that no supervisor has started."""
    return Context()
