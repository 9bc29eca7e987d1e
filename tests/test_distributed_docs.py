"""Commands in docs/distributed.md: flags that exist, with values that are allowed."""

import pathlib
import re
import shlex
import subprocess

import pytest

from dreamerv3.commands import join, keys
from dreamerv3.main import SCRIPTS
from dreamerv3.settings import config as settings
from dreamerv3.settings import flags, rules
from embodied import rpc
from embodied.cluster import discovery
from embodied.run.parallel import run_keys

PAGE = pathlib.Path(__file__).parents[1] / "docs" / "distributed.md"
BLOCK = re.compile(r"^```(sh|bash)\n(.*?)^```", re.MULTILINE | re.DOTALL)
BLOCKS = BLOCK.findall(PAGE.read_text())


def words(text, variables):
    for name, value in variables.items():
        text = text.replace(f"${name}", value)
    return shlex.split(text)


def commands():
    """Each `dreamerv3` command of the page, as its words after that."""
    found = []
    for _, block in BLOCKS:
        joined = block.replace("\\\n", " ")
        block_flags = re.search(r'(?s)^flags="(.*?)"$', joined, re.MULTILINE)
        flags_text = " ".join(block_flags[1].split()) if block_flags else ""
        variables = {"flags": flags_text, "logdir": "/tmp/far", "address": "10.0.0.5"}
        for line in joined.splitlines():
            match = re.search(r"(?:^|\s)dreamerv3 (.*?)( &)?$", line)
            if match:
                found.append(words(match[1], variables))
    return found


COMMANDS = commands()


def test_the_page_has_commands_of_all_kinds():
    scripts = {c[c.index("--script") + 1] for c in COMMANDS if "--script" in c}
    assert any("--launcher" in command for command in COMMANDS)
    roles = {word for c in COMMANDS if c[0] == "join" for word in c[1:]}
    assert {"env", "learner", "replay"} <= roles
    assert {"parallel", "parallel_env", "parallel_envs", "parallel_replay"} <= scripts
    assert sum(command[0] == "keys" for command in COMMANDS) == 2


@pytest.mark.parametrize("command", COMMANDS, ids=lambda c: " ".join(c)[:60])
def test_a_command_is_accepted(command, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("HOME", str(tmp_path))
    if command[0] == "keys":
        keys.run([str(tmp_path / "keys"), *command[2:]])
        assert "env.json" in capsys.readouterr().out
        return
    rpc.make_keys(tmp_path / "keys", run_keys.CLIENTS)
    if command[0] == "join":
        words = [word.replace("~", str(tmp_path)) for word in command[1:]]
        words = [word.replace("/tmp/far/keys", f"{tmp_path}/keys") for word in words]
        args, rest = join.make_parser().parse_known_args(words)
        assert not rest
        join.check_flags(args, rest)
        assert join.read_invitation(args.address, args.key, join.KEYS[args.role]).keys
        return
    if "ray" in command:  # Which need not be here, and of a cluster there is none.
        monkeypatch.setattr("importlib.util.find_spec", str)
        nodes = {"10.0.0.5": {"CPU": 8.0}, "10.0.0.6": {"CPU": 8.0, "GPU": 1.0}}
        cluster = discovery.Cluster("10.0.0.5", 2, nodes)
        monkeypatch.setattr(discovery, "look", lambda address: cluster)
    command = [word.replace("~", str(tmp_path)) for word in command]
    command = [word.replace("/tmp/far/keys", f"{tmp_path}/keys") for word in command]
    problems = []
    typed = flags.parse(command, problems)
    values = flags.layer(settings.read_blocks(), typed, {}, problems)
    key_dir = values["run.key_dir"].replace("~", str(tmp_path))
    values |= {"run.key_dir": key_dir, "logdir": str(tmp_path / "run")}
    problems += rules.check(values, SCRIPTS)
    assert not problems


@pytest.mark.process
@pytest.mark.parametrize("block", [text for kind, text in BLOCKS if kind == "bash"])
def test_a_batch_script_parses(block):
    result = subprocess.run(["bash", "-n"], input=block, text=True, capture_output=True)
    assert result.returncode == 0, result.stderr
    assert "#SBATCH" in block
