"""The live view: what it says, and that it shares the terminal with others."""

import io
import json
import os
import re
import termios

import numpy as np
import pytest
from rich.console import Console

from embodied.metrics import LiveOutput, Status, panel, screen
from embodied.metrics import terminal as terminal_module
from embodied.metrics.health import Group, Roles
from embodied.testing.terminal import Terminal

RECORDED = [
    *[(step, "episode/score", step / 100) for step in range(100, 900, 100)],
    (800, "episode/score", np.nan),
    (800, "episode/length", 100),
    (800, "fps/policy", 40.0),
    (800, "fps/train", 1280.0),
    (800, "fps/env", 15000.0),
    (800, "train/loss/total", np.inf),
    (800, "train/opt/grad_norm", 3.0),
    (800, "parallel/bottleneck", "learner: it waits only 1% of the time"),
]
SHOWN = r"episode/|fps/|loss/total|bottleneck"


def make_status(pattern=SHOWN):
    now = [0.0]
    status = Status(pattern, steps=4000, clock=lambda: now[0])
    status.add([(400, "fps/train", 1)])
    now[0] = 10.0
    status.add(RECORDED)
    return status


def render(status, width=80, **options):
    """Lines of a console without colours, by their label."""
    console = Console(file=io.StringIO(), width=width, _environ={})
    lines = panel.render(console, status, **options)
    assert max(map(len, lines)) <= width
    assert not lines[0].strip("─")
    found, label = {}, ""
    for line in lines[1:]:
        label = line[:8].strip() or label
        found.setdefault(label, []).append(line[9:].rstrip())
    return {label: "\n".join(parts) for label, parts in found.items()}


def test_progress_and_time_left():
    line = render(make_status())["step"]
    # 400 steps in 10 seconds, 3200 are missing.
    assert line.startswith("800 of 4,000  20%  ━")
    assert line.endswith("0:10 elapsed, 1:20 left")


def test_the_end_leaves_no_promise():
    line = render(make_status(), ended=True)["step"]
    assert line.endswith("0:10 elapsed")


def test_scores_as_mean_and_curve():
    line = render(make_status())["score"]
    assert line == "4.50  mean of 8 episodes  ▁▂▃▄▅▆▇█  1 to 8  1 not finite"


def test_speeds_have_units_and_the_rest_follows():
    lines = render(make_status())
    assert lines["speed"] == (
        "policy 40 env steps/s · train 1,280 replayed steps/s\n"
        "env alone 15,000 env steps/s"
    )
    assert lines["limit"] == "learner: it waits only 1% of the time"
    assert lines["metrics"] == "length 100 steps · loss inf"


def test_the_filter_counts():
    lines = render(make_status("grad_norm"))
    assert set(lines) == {"step", "metrics"}
    assert lines["metrics"] == "train/opt/grad_norm 3"


def test_roles_with_restarts():
    groups = [
        Group("agent", 1, 1, 1),
        Group("env", 15, 16, 3),
        Group("replay", 1, 1, 0),
    ]
    lines = render(make_status(), groups=groups, logdir="logdir/x")
    assert lines["roles"] == (
        "● agent 1 restart  ● env x16 1 not running 3 restarts  ● replay"
    )
    assert lines["logs"] == "logdir/x"


def test_what_it_waits_for():
    lines = render(Status(steps=10), waiting="compiling, about a minute on a CPU")
    assert lines["waits"] == "compiling, about a minute on a CPU"
    assert lines["step"].startswith("0 of 10  0%")


def test_colours_only_where_they_are_wanted():
    coloured = panel.render(panel.make_console(80, {}), make_status())
    assert "\x1b[32m" in "".join(coloured)
    plain = panel.render(panel.make_console(80, {"NO_COLOR": "1"}), make_status())
    assert not re.search(r"\x1b\[3\dm", "".join(plain))


def test_roles_of_this_run_only(tmp_path):
    path = tmp_path / "roles.json"
    roles = Roles(path)
    assert roles.groups() == []
    ids = {"agent": os.getpid(), "env0": os.getpid(), "env1": None}
    found = {name: {"pid": pid, "restarts": 1} for name, pid in ids.items()}
    path.write_text(json.dumps(found))
    assert roles.groups() == [Group("agent", 1, 1, 1), Group("env", 1, 2, 2)]
    os.utime(path, (1, 1))
    assert roles.groups() == []  # Somebody's from before.


@pytest.fixture
def terminal():
    return Terminal(lines=24, columns=80)


@pytest.fixture
def tty(terminal):
    """The terminal as a file, as the process with the view has it."""
    with os.fdopen(os.dup(terminal.tty), "w", encoding="utf-8") as file:
        yield file


def test_what_others_print_scrolls_above(terminal, tty):
    view = screen.Screen(tty)
    assert view.width == 79
    others = os.dup(terminal.tty)  # Another process.
    for number in range(40):
        os.write(others, f"line {number}\n".encode())
        view.draw([f"view {number}", *["second"] * (number > 20)])
    os.write(others, b"unfinished")
    view.draw(["view", "second"])
    view.close(["final"])
    view.close(["again"])
    os.close(others)
    tty.close()
    lines = [line for line in terminal.finish() if line]
    assert lines == [*(f"line {number}" for number in range(40)), "unfinishedfinal"]
    assert terminal.region == (0, 23)
    assert not terminal.cursor_hidden


def test_the_view_stays_at_the_bottom(terminal, tty):
    view = screen.Screen(tty)
    for number in range(40):
        print(f"line {number}", file=tty)
        view.draw(["one", "two"])
    tty.close()
    screens = terminal.finish()[-24:]
    assert screens[-5:] == ["line 38", "line 39", "", "one", "two"]
    assert terminal.region == (0, 21)
    screen._held.discard(view)


def test_a_killed_view_is_replaced(terminal, tty):
    print("before", file=tty)
    killed, view = screen.Screen(tty), screen.Screen(tty)
    killed.draw(["old", "old", "old"])
    screen._held.discard(killed)
    print("killed", file=tty)
    view.draw(["new", "new"])
    screen.release()  # As when the process has to end at once.
    screen.restore(tty)  # As the launcher does in any case.
    tty.close()
    assert [line for line in terminal.finish() if line] == ["before", "killed"]
    assert terminal.region == (0, 23)


def test_another_size_reserves_anew(terminal, tty):
    view = screen.Screen(tty)
    view.draw(["one"])
    termios.tcsetwinsize(tty, (6, 40))
    view.draw(list("abcdef"))
    screen.release()
    tty.close()
    terminal.finish()
    assert "\x1b[1;23r" in terminal.text
    assert "\x1b[1;4r" in terminal.text
    assert "\x1b[6;1H\x1b[2Kb\x1b8" in terminal.text  # What fits.
    assert "\x1b[2Kc" not in terminal.text


def test_who_gets_a_view(tty):
    assert screen.suits(tty, {"TERM": "xterm"})
    assert not screen.suits(tty, {"TERM": "dumb"})
    assert not screen.suits(tty, {})
    assert not screen.suits(tty, {"TERM": "xterm", "CI": "true"})
    termios.tcsetwinsize(tty, (0, 0))
    assert not screen.suits(tty, {"TERM": "xterm"})
    assert not screen.suits(io.StringIO(), {"TERM": "xterm"})


def test_a_run_that_goes_on_shows_its_earlier_scores(tmp_path, terminal, tty):
    rows = [{"step": i, "episode/score": i} for i in range(5)]
    rows.append({"step": 6, "episode/score": None})
    text = "".join(json.dumps(row) + "\n" for row in rows) + '{"step": 7, "epi'
    (tmp_path / "scores.jsonl").write_text(text)
    output = LiveOutput(Status(steps=10), str(tmp_path), file=tty)
    output([(8, "episode/score", 10.0)])
    output.close()
    tty.close()
    lines = terminal.finish()
    assert any("mean of 6 episodes" in line for line in lines)
    assert any("8 of 10" in line for line in lines)


def test_a_terminal_that_is_gone_is_an_error(tty, monkeypatch):
    monkeypatch.setattr(terminal_module, "REFRESH", 0.01)
    output = LiveOutput(Status(steps=10), file=tty)
    monkeypatch.setattr(output._screen, "draw", hang_up)
    output._thread.join(10)
    with pytest.raises(OSError, match="gone"):
        output([(8, "episode/score", 10.0)])
    screen.release()


def hang_up(lines):
    raise OSError("the terminal is gone")
