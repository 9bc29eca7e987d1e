"""MLflow: what its own client reads from the local store."""

import av
import pytest

mlflow = pytest.importorskip("mlflow")


@pytest.mark.slow  # Making the tables of the database takes most of it.
@pytest.mark.parametrize("files", [False, True], ids=["database", "files"])
def test_every_kind_and_going_on(tmp_path, every_kind, monkeypatch, files):
    from embodied.metrics.mlflow import MlflowOutput

    logdir = tmp_path / "first"
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    uri = (tmp_path / "store").as_uri() if files else ""
    config = {"run.steps": 500, "agent.mults": (1, 2), "logger.mlflow.uri": ""}
    for start in range(2):
        output = MlflowOutput(logdir, 7, config, "dreamer", uri)
        output([(step + 20 * start, *rest) for step, *rest in every_kind])
        output.close()
    client = mlflow.MlflowClient(uri or f"sqlite:///{logdir}/mlflow.db")
    experiment = client.get_experiment_by_name("dreamer")
    (run,) = client.search_runs([experiment.experiment_id])  # One, also after going on.
    assert (run.info.run_name, run.info.status) == ("first", "FINISHED")
    assert run.data.params == {key: str(value) for key, value in config.items()}
    assert set(run.data.metrics) == {"episode/score", "train/count", "train/bad"}
    history = client.get_metric_history(run.info.run_id, "episode/score")
    points = [(metric.step, metric.value) for metric in history]
    assert points == [(10, 1.5), (20, 1.5), (20, 2.5), (30, 1.5), (40, 1.5), (40, 2.5)]
    folder = "media/report/openloop/image"
    found = [file.path for file in client.list_artifacts(run.info.run_id, folder)]
    assert found == [f"{folder}/{step:012d}.mp4" for step in (10, 20, 30, 40)]
    with av.open(client.download_artifacts(run.info.run_id, found[-1])) as file:
        assert len(list(file.decode(video=0))) == 6


@pytest.mark.slow  # As above.
@pytest.mark.parametrize("files", [False, True], ids=["database", "files"])
def test_a_run_whose_store_was_removed_begins_anew(tmp_path, monkeypatch, files):
    from embodied.metrics.mlflow import FILE, MlflowOutput

    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    uri = (tmp_path / "store").as_uri() if files else ""
    gone = "0" * 32
    (tmp_path / FILE).write_text(gone)
    output = MlflowOutput(tmp_path, 7, {}, "dreamer", uri)
    output([(1, "episode/score", 1.5)])
    output.close()
    run = (tmp_path / FILE).read_text()
    assert run != gone
    client = mlflow.MlflowClient(uri or f"sqlite:///{tmp_path}/mlflow.db")
    assert client.get_run(run).data.metrics == {"episode/score": 1.5}
    client.delete_run(run)  # That one is known, and refused for another reason.
    with pytest.raises(mlflow.MlflowException, match=r"must be in.* 'active'"):
        MlflowOutput(tmp_path, 7, {}, "dreamer", uri)
