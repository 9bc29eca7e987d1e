"""The commands plot and report, and what they say about mistakes."""

import os
import pathlib
import re
import shlex

import PIL.Image
import pytest

from dreamerv3.commands import plot, report, view
from dreamerv3.commands.base import CommandError
from dreamerv3.settings import config, flags, logdir
from dreamerv3.viewing import report as reports


@pytest.fixture
def root(make_run, tmp_path):
    for task in ("atari_pong", "atari_breakout", "dummy_disc"):
        for seed in range(2):
            run = make_run(f"{task}-{seed}", task=task, seed=seed)
            run.add_episodes(30, offset=seed)
    return tmp_path / "logdir"


@pytest.mark.parametrize("suffix", ["png", "pdf", "svg"])
def test_picture(root, tmp_path, suffix, capsys):
    path = tmp_path / "new" / f"curves.{suffix}"
    plot.run([str(root), "-o", str(path)])
    text = capsys.readouterr().out
    assert "6 runs drawn" in text
    assert re.search(r"dreamerv3 +2 +4 ", text), "two games with two seeds each"
    assert path.stat().st_size > 5000
    if suffix == "png":
        assert min(PIL.Image.open(path).size) > 400


def test_runs_without_the_metric_are_named(root, make_run, tmp_path, capsys):
    make_run("young-0", task="dummy_disc", seed=0)  # No episode has ended yet.
    plot.run([str(root), "-o", str(tmp_path / "curves.png")])
    text = capsys.readouterr().out
    assert "Left out, without episode/score: young-0" in text
    assert "6 runs drawn" in text


def test_runs_without_times_are_named(root, make_run, tmp_path, capsys):
    make_run("timeless-0", task="dummy_disc", seed=0).add(1, episode__score=1)
    plot.run([str(root), "-o", str(tmp_path / "curves.png"), "--axis", "time"])
    text = capsys.readouterr().out
    assert "Left out, without times, use --axis step: timeless-0" in text


def test_page_is_one_file(root, tmp_path):
    path = tmp_path / "curves.html"
    plot.run([str(root), "-o", str(path), "--metric", "train/loss/total"])
    text = path.read_text()
    assert not re.search(r"""(src|href)=["'](?!data:)""", text)
    assert "dummy_disc" in text
    assert "Human-normalised" not in text  # A loss has no human level.


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["missing"], "missing does not exist"),
        (["{root}", "-o", "curves.xyz"], "cannot write .xyz"),
        (["{root}", "--metric", "loss/totl"], "no run has the metric"),
        (["{root}", "--metric", "other/score"], "did you mean episode/score"),
        (["{root}", "--metric", "episode/scroe"], "did you mean episode/score"),
        (["{root}", "--metric", "zzz"], "there are episode"),
    ],
)
def test_mistakes_in_plot(root, words, message):
    words = [word.format(root=root) for word in words]
    with pytest.raises(CommandError, match=re.escape(message)):
        plot.run(words)


def test_no_times(make_run, tmp_path):
    make_run().add(1, episode__score=1)
    with pytest.raises(CommandError, match="--axis step"):
        plot.run([str(tmp_path), "--axis", "time"])


def test_report_has_everything_inside(make_run, tmp_path, capsys):
    run = make_run(note="</script><script>alert(1)</script>")
    run.add_episodes(30)
    run.add(4000, 1.7e9 + 100, fps__policy=123.4)
    run.add_video("report/openloop/image", 100)
    run.add_video("report/openloop/image", 3000, seed=1)
    run.add_file("note", "000000000100.txt", b"<b>text</b>")
    run.add_roles(agent=(1, 3))
    path = tmp_path / "report.html"
    report.run([str(run.path), "-o", str(path)])
    assert str(path) in capsys.readouterr().out
    text = path.read_text()
    assert not re.search(r"""(src|href)=["'](?!data:)""", text)
    assert text.count("data:video/mp4") == 1
    assert "step 3,000" in text
    assert "123.4" in text
    assert "&lt;b&gt;text" in text
    assert "<script>alert" not in text
    assert "Processes" in text
    assert "dreamerv3 --note" in text


def test_report_explains_and_leaves_out_empty_charts(make_run, tmp_path):
    run = make_run()
    run.add_episodes(5)
    run.add(600, fps__policy=None)
    run.add_video("report/openloop/image", 100)
    with (run.path / "metrics.jsonl").open("a") as file:
        file.write("torn\n")
    path = tmp_path / "report.html"
    report.run([str(run.path), "-o", str(path)])
    text = path.read_text()
    assert 'data-chart="episode/score"' in text
    assert 'data-chart="fps/policy"' not in text
    assert "This is the learning curve." in text
    assert "Top row: what happened." in text
    assert "metrics.jsonl: 1 line cannot be read: no JSON" in text


def test_a_bad_run_is_named(root, make_run, tmp_path, capsys):
    os.mkfifo(make_run("bad").path / "metrics.jsonl")
    plot.run([str(root), "-o", str(tmp_path / "curves.html")])
    text = capsys.readouterr().out
    assert "Cannot read all of bad: metrics.jsonl: not a regular file" in text
    assert "6 runs drawn" in text


def test_report_of_a_run_that_wrote_nothing(make_run):
    run = make_run()
    report.run([str(run.path)])
    assert "No metrics" in (run.path / "report.html").read_text()


def test_the_command_in_a_report_makes_the_same_settings(tmp_path):
    blocks = config.read_blocks()
    words = ["--configs", "debug", "--seed", "3", "--agent.opt.lr", "1.23456789e-4"]
    words += [
        "--logger.outputs",
        "jsonl",
        "--jax.mesh",
        "2,1,1",
        "--run.duration",
        "60",
    ]
    values = flags.layer(blocks, flags.parse(words, []), {}, [])
    values["logdir"] = str(tmp_path)
    logdir.save(values)
    line = reports.command(logdir.load(tmp_path))
    problems = []
    again = flags.layer(
        blocks, flags.parse(shlex.split(line)[1:], problems), {}, problems
    )
    again["logdir"] = values["logdir"]
    assert not problems
    assert again == values


def test_mistakes_in_report_and_view(root, tmp_path):
    with pytest.raises(CommandError, match="holds 6 runs"):
        report.run([str(root)])
    with pytest.raises(CommandError, match="does not exist"):
        report.run([str(tmp_path / "missing")])
    with pytest.raises(CommandError, match="does not exist"):
        view.run([str(tmp_path / "missing")])
    with pytest.raises(CommandError, match="--port"):
        view.run([str(root), "--port", "99999", "--no-cache"])


def test_help_has_an_example(capsys):
    for module in (view, plot, report):
        with pytest.raises(SystemExit):
            module.run(["--help"])
        name = pathlib.Path(module.__file__).stem
        assert f"dreamerv3 {name} logdir" in capsys.readouterr().out


def test_bins_must_be_a_number(root, capsys):
    for value in ("1", "many"):
        with pytest.raises(SystemExit):
            plot.run([str(root), "--bins", value])
        error = capsys.readouterr().err
        assert f"--bins: '{value}' must be a number, 2 or more" in error


def test_reading_and_writing_fail_by_their_names(make_run, tmp_path, monkeypatch):
    run = make_run()
    run.add_episodes(2)
    with pytest.raises(CommandError, match="cannot write /dev/null/x"):
        report.run([str(run.path), "-o", "/dev/null/x"])

    def fail(directory, overlay):
        raise OSError("bad disk")

    monkeypatch.setattr(reports, "read", fail)
    with pytest.raises(CommandError, match=f"cannot read {run.path}: bad disk"):
        report.run([str(run.path)])
