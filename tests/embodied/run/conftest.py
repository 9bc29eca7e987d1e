"""A role as in a fresh process: nobody has asked it to stop, nobody heard it beat."""

import threading

import pytest

from embodied.run import role


@pytest.fixture
def fresh_role(monkeypatch):
    monkeypatch.setattr(role, "_stop", threading.Event())
    monkeypatch.setattr(role, "_completed", threading.Event())
    monkeypatch.setattr(role, "_beat", role.Beat())
    monkeypatch.setattr(role, "_parts", {})
    monkeypatch.setattr(role, "_leave", None)
    return role
