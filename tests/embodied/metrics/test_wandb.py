"""Weights & Biases in offline mode: what its files hold, record by record."""

import json
import struct

import av
import pytest

wandb = pytest.importorskip("wandb")
BLOCK = 32768  # The files are LevelDB logs: blocks of records, some in parts.
HEADER = struct.Struct("<IHB")  # Checksum, length, and which part of a record it is.


def records(path):
    """The messages of a `.wandb` file, by the package's own definitions."""
    from wandb.proto import wandb_internal_pb2

    data, position, parts = path.read_bytes(), 7, b""
    assert data[:4] == b":W&B"
    while position + HEADER.size <= len(data):
        if BLOCK - position % BLOCK < HEADER.size:
            position += BLOCK - position % BLOCK
            continue
        _, length, part = HEADER.unpack_from(data, position)
        position += HEADER.size
        if position + length > len(data):
            return  # It is being written.
        parts += data[position : position + length]
        position += length
        if part in (1, 4):  # Whole, or the last one.
            record = wandb_internal_pb2.Record()
            record.ParseFromString(parts)
            yield record
            parts = b""


def history(path):
    """What was logged at once, one dictionary each."""
    for record in records(path):
        if record.WhichOneof("record_type") == "history":
            row = {}
            for item in record.history.item:
                name, *path = item.nested_key
                value = json.loads(item.value_json)
                if path:
                    row.setdefault(name, {})["/".join(path)] = value
                else:
                    row[name] = value
            yield row


def is_complete(path):
    """Whether a file has the record that ends a run, after all others."""
    return "exit" in [record.WhichOneof("record_type") for record in records(path)]


@pytest.mark.slow  # Its service takes a while to start, twice.
def test_every_kind_and_going_on(tmp_path, every_kind, until):
    from embodied.metrics.wandb import FILE, WandbOutput

    config = {"run.steps": 500, "task": "bounce_32"}
    for start in range(2):
        output = WandbOutput(tmp_path, 7, config, "project", mode="offline")
        output([(step + 20 * start, *rest) for step, *rest in every_kind])
        output.close()
    number = (tmp_path / FILE).read_text()
    first, second = sorted(tmp_path.glob(f"wandb/offline-run-*/run-{number}.wandb"))
    for path in (first, second):  # Its service writes after `close` has returned.
        until(lambda path=path: is_complete(path))
    rows = list(history(first))
    assert [(row["step"], row["episode/score"]) for row in rows] == [
        (10, 1.5),
        (20, 1.5),
        (20, 2.5),
    ]
    assert [row["step"] for row in history(second)] == [30, 40, 40]
    assert rows[0]["train/dist"]["_type"] == "histogram"
    assert sum(rows[0]["train/dist"]["values"]) == 100
    assert rows[0]["parallel/bottleneck"] == "actor: it is busy 90 %, é"
    assert rows[0]["report/image"]["_type"] == "image-file"
    media = rows[0]["report/openloop/image"]
    assert media["_type"] == "video-file"
    with av.open(first.parent / "files" / media["path"]) as file:
        assert len(list(file.decode(video=0))) == 6
    (run,) = [r.run for r in records(first) if r.WhichOneof("record_type") == "run"]
    kept = {item.key: json.loads(item.value_json) for item in run.config.update}
    assert (run.run_id, run.project) == (number, "project")
    assert {key: kept[key] for key in config} == config
