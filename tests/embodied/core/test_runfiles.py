"""Processes of a run, as its log directory names them."""

import json
import os

import pytest

from embodied.core import runfiles


def write(directory, roles):
    path = directory / runfiles.ROLES
    path.write_text(json.dumps(roles))
    return path


def test_roles_are_read_in_order_and_alive_or_not(tmp_path):
    roles = {
        "agent": {"pid": os.getpid(), "restarts": 2},
        "env0": {"pid": 2**22 + 1, "restarts": 0},
        "fleet": {"pid": None, "restarts": 0},
    }
    found = runfiles.read_roles(write(tmp_path, roles))
    assert [(role.name, role.restarts) for role in found] == [
        ("agent", 2),
        ("env0", 0),
        ("fleet", 0),
    ]
    assert [role.is_alive() for role in found] == [True, False, False]


def test_a_later_process_with_the_same_number_is_another_one(tmp_path):
    path = write(tmp_path, {"agent": {"pid": os.getpid(), "restarts": 0}})
    os.utime(path, (1e9, 1e9))  # Before this process began.
    (role,) = runfiles.read_roles(path)
    assert not role.is_alive()


@pytest.mark.parametrize("content", ["{", "[]", "3", '{"a": 1}', '{"a": {"pid": 1}}'])
def test_other_files_name_no_roles(tmp_path, content):
    path = tmp_path / runfiles.ROLES
    assert runfiles.read_roles(path) == []
    path.write_text(content)
    assert runfiles.read_roles(path) == []
