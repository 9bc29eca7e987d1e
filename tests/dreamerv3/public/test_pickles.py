"""Pickles: numbers are read, and whatever else a pickle names is not executed."""

import os
import pickle

import numpy as np
import pytest

from dreamerv3.public import pickles
from embodied.core.checkpoint import CheckpointError

TREE = {
    "params": {
        "plain": np.arange(6, dtype=np.float32).reshape(2, 3),
        "fortran": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        "big": np.arange(3, dtype=">i4"),
        "nothing": np.zeros((0, 4), np.float32),
        "number": np.array(7, np.int32),
        "flags": np.array([True, False]),
    },
    "counters": {"updates": 3, "scalar": np.float32(0.5)},
    "rest": [1, 2.5, "text", b"bytes", None, (True,)],
}


class Call:
    """Pickled as a call."""

    def __init__(self, function, *args):
        self.call = function, args

    def __reduce__(self):
        return self.call


def write(path, content):
    path.write_bytes(content if isinstance(content, bytes) else pickle.dumps(content))
    return path


@pytest.mark.parametrize("protocol", range(3, pickle.HIGHEST_PROTOCOL + 1))
def test_arrays_and_plain_values(tmp_path, protocol):
    path = write(tmp_path / "tree.pkl", pickle.dumps(TREE, protocol))
    found = pickles.read(path)
    for name, value in TREE["params"].items():
        np.testing.assert_array_equal(found["params"][name], value)
        assert found["params"][name].dtype == value.dtype
    assert found["counters"] == TREE["counters"]
    assert found["rest"] == TREE["rest"]


def test_old_and_new_names_of_modules(tmp_path):
    content = pickle.dumps(np.arange(3), 3)
    names = (b"numpy.core.multiarray", b"numpy._core.multiarray")
    old, new = (content.replace(names[1], name) for name in names)
    assert old != new
    for each in (old, new):
        found = pickles.read(write(tmp_path / "array.pkl", each))
        np.testing.assert_array_equal(found, np.arange(3))


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda f: Call(os.system, f"touch {f}"), r"posix\.system"),
        (lambda f: Call(eval, f"open({str(f)!r}, 'w')"), r"builtins\.eval"),
        (lambda f: Call(open, str(f), "w"), r"io\.open"),
        (lambda f: Call(getattr, "text", "upper"), r"builtins\.getattr"),
        (lambda f: Call(np.load, str(f)), r"numpy\.load"),
        (lambda f: Call(np.save, str(f), 1), r"numpy\.save"),
        (lambda f: Call(np.memmap, str(f), "u1", "w+", 0, 1), r"numpy\.memmap"),
        (lambda f: Call(np.fromfile, str(f)), r"numpy\..*fromfile"),
        (lambda f: Call(np.ndarray.tofile, np.zeros(1), str(f)), "getattr|tofile"),
        (lambda f: {"deep": [Call(os.mkdir, str(f))]}, r"posix\.mkdir"),
        (lambda f: {1, 2}, "has a set"),
        (lambda f: np.array([Call(os.mkdir, str(f))]), "'O8'|posix"),
        (lambda f: np.zeros(2, [("a", "f4")]), "has an array of 'V4'"),
    ],
)
def test_hostile_pickles_are_rejected_by_name(tmp_path, make, name):
    trace = tmp_path / "trace"
    path = write(tmp_path / "hostile.pkl", make(trace))
    with pytest.raises(CheckpointError, match=name) as error:
        pickles.read(path)
    assert str(path) in str(error.value)
    assert "not executed" in str(error.value)
    assert not trace.exists()


def test_the_hostile_pickle_would_work(tmp_path):
    """Else the test above could not fail."""
    trace = tmp_path / "trace"
    pickle.loads(pickle.dumps(Call(os.mkdir, str(trace))))
    assert trace.exists()


def test_dotted_names_are_no_way_around(tmp_path):
    """Protocol 4 looks up attributes of what it names."""
    content = b"\x80\x04\x8c\x05numpy\x8c\x0endarray.tofile\x93."
    with pytest.raises(CheckpointError, match=r"asks for 'numpy\.ndarray\.tofile'"):
        pickles.read(write(tmp_path / "dotted.pkl", content))


def name(module, attribute):
    """Opcodes that push what a module calls by a name."""
    return text(module) + text(attribute) + b"\x93"


def text(value):
    return b"\x8c" + bytes([len(value)]) + value.encode()


FLOATS = name("numpy", "dtype") + text("f4") + b"\x85R"
FROM_BUFFER = name("numpy._core.numeric", "_frombuffer")
GIGABYTES = b"\x8a\x05" + (4 << 30).to_bytes(5, "little")
SHARED = b"".join(b"\x94h%c\x86" % i for i in range(20))
NESTED = b"]\x94" + b"".join(b"](h%ch%ce\x94" % (i, i) for i in range(60))


@pytest.mark.parametrize(
    ("program", "message"),
    [
        (b"Nr" + (2**30).to_bytes(4, "little"), "memo of 1073741824 slots"),
        (b"Np4000000000\n", "memo of 4000000000 slots"),
        (
            FROM_BUFFER + b"(" + GIGABYTES + FLOATS + b"K\x01" + text("C") + b"tR",
            "has an array made of int",
        ),
        (NESTED + name("numpy", "dtype") + b"h\x3c\x85R", r"has an array of \[\["),
        (FLOATS, "has a dtype"),
        (FROM_BUFFER, "has a type"),
        (b"K\x07Q", "external object 7"),
        (b"}N\x85" + b"2\x86" * 20 + b"Ns", "repeats a value by DUP"),
        (b"}N\x85" + SHARED + b"Ns", "the same tuple in several places"),
        *(
            (b"}N\x85" + SHARED.replace(b"\x94", other) + b"Ns", "the same tuple")
            for other in (b"N0\x94", b"Nb\x94", b"q\xff\x94")
        ),
        (name("\x1b[2Jos", "system\n"), r"asks for '\\x1b\[2Jos\.system\\n'"),
    ],
)
def test_programs_that_waste_memory_or_confuse(tmp_path, program, message):
    path = write(tmp_path / "hostile.pkl", b"\x80\x05" + program + b".")
    with pytest.raises(CheckpointError, match=message):
        pickles.read(path)


def test_nested_containers_are_not_copied(tmp_path):
    """Sixty lists, each with the one before twice, are 2**60 if written out."""
    tree = pickles.read(write(tmp_path / "nested.pkl", b"\x80\x05" + NESTED + b"."))
    assert tree[0] is tree[1]


@pytest.mark.parametrize("full", pickles.ALLOWED)
def test_stand_ins_cannot_be_changed(tmp_path, full):
    state = b"N}" + text("__doc__") + text("changed") + b"s\x86b"
    program = b"\x80\x05" + name(*full.rsplit(".", 1)) + state + b"."
    with pytest.raises(CheckpointError, match="__setstate__"):
        pickles.read(write(tmp_path / "hostile.pkl", program))
    assert pickles.ALLOWED[full].__doc__ != "changed"


@pytest.mark.parametrize("program", [b"]\x94h\x00a", b"]" * 9999 + b"a" * 9998])
def test_endless_nesting_is_one_line(tmp_path, program):
    with pytest.raises(CheckpointError, match="RecursionError") as error:
        pickles.read(write(tmp_path / "deep.pkl", b"\x80\x05" + program + b"."))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("size", [0, 1, 40, -1])
def test_damaged_files_are_one_line(tmp_path, size):
    path = write(tmp_path / "cut.pkl", pickle.dumps(TREE)[:size])
    with pytest.raises(CheckpointError, match="truncated or damaged") as error:
        pickles.read(path)
    assert "\n" not in str(error.value)


def test_missing_file(tmp_path):
    with pytest.raises(CheckpointError, match="No such file"):
        pickles.read(tmp_path / "missing.pkl")
