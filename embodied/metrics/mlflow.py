"""MLflow, through its package: metrics, parameters, and files as artefacts."""

from __future__ import annotations

import logging
import os
import pathlib
import re
import tempfile
import time
from collections.abc import Mapping, Sequence
from typing import Any

import mlflow.entities
import numpy as np
from mlflow import MlflowClient
from mlflow.exceptions import MlflowException
from mlflow.protos import databricks_pb2

from embodied.core import files
from embodied.metrics.media import MediaOutput
from embodied.metrics.summary import Summary, is_scalar, read_id

FILE = "mlflow_run.txt"  # Holds the id of the run, to resume it.
DIGITS = 32  # Of the id.
UNKNOWN = databricks_pb2.ErrorCode.Name(databricks_pb2.RESOURCE_DOES_NOT_EXIST)
BATCH = 100  # Parameters, and metrics times ten, that one request may hold.


class MlflowOutput:
    """Logs numbers as metrics, and videos, images and texts as artefacts.

    Without an address everything is kept in `LOGDIR/mlflow.db` and `LOGDIR/mlflow`.
    """

    def __init__(
        self,
        logdir: str | os.PathLike,
        fps: int,
        config: Mapping[str, Any],
        experiment: str,
        uri: str = "",
    ):
        directory = pathlib.Path(logdir).absolute()
        directory.mkdir(parents=True, exist_ok=True)
        for name in ("alembic", "mlflow.store.db"):  # They tell how a table is made.
            logging.getLogger(name).setLevel(logging.WARNING)
        self._fps = fps
        self._client = MlflowClient(uri or f"sqlite:///{directory}/mlflow.db")
        self._artifacts = "" if uri else (directory / "mlflow").as_uri()
        self._run = self._resume(directory / FILE) or self._create(
            directory / FILE, experiment, config
        )

    def __call__(self, summaries: Sequence[Summary]) -> None:
        now = int(1000 * time.time())
        numbers = [s for s in summaries if is_scalar(s[2])]
        metrics = [
            mlflow.entities.Metric(_allowed(k), np.asarray(v).item(), now, int(step))
            for step, k, v in numbers
        ]
        for start in range(0, len(metrics), 10 * BATCH):
            self._client.log_batch(self._run, metrics[start : start + 10 * BATCH])
        others = [s for s in summaries if not is_scalar(s[2])]
        if others:
            with tempfile.TemporaryDirectory() as folder:
                MediaOutput(folder, self._fps)(others)
                self._client.log_artifacts(self._run, folder)

    def close(self) -> None:
        self._client.set_terminated(self._run)

    def _resume(self, path: pathlib.Path) -> str:
        """The run of this log directory, if the server still knows it."""
        run = read_id(path, DIGITS)
        if not run:
            return ""
        try:
            self._client.update_run(run, status="RUNNING")
        except MlflowException as error:
            if error.error_code != UNKNOWN:
                raise
            return ""
        return run

    def _create(
        self, path: pathlib.Path, experiment: str, config: Mapping[str, Any]
    ) -> str:
        found = self._client.get_experiment_by_name(experiment)
        number = found and found.experiment_id
        if not number:
            number = self._client.create_experiment(experiment, self._artifacts or None)
        name = path.parent.name
        run = self._client.create_run(number, run_name=name).info.run_id
        params = [mlflow.entities.Param(k, str(v)) for k, v in config.items()]
        for start in range(0, len(params), BATCH):
            self._client.log_batch(run, params=params[start : start + BATCH])
        files.write_text(path, run, durable=True)
        return run


def _allowed(name: str) -> str:
    return re.sub(r"[^\w./ :-]", "_", name)
