"""Checks addresses and keys of a run that is not all on one machine."""

from __future__ import annotations

import importlib.util
import pathlib
from collections.abc import Callable, Mapping
from functools import partial as bind
from typing import Any, NamedTuple

from dreamerv3 import ray_job
from dreamerv3.settings.config import Flat, Problem
from dreamerv3.settings.schema import Settings
from embodied.cluster import discovery
from embodied.core import extras, runfiles
from embodied.envs import registry
from embodied.rpc import AddressError, KeyFileError
from embodied.rpc import address as addresses
from embodied.rpc.keys import SERVER_FILE, load_client, load_server
from embodied.run.parallel import launch, run_keys
from embodied.run.parallel.member import WILDCARDS

COORDINATOR = "run.coordinator_addr"
ACTOR, REPLAY, LOGGER = "run.actor_addr", "run.replay_addr", "run.logger_addr"
LEARNERS, LEARNER = "run.learners", "run.learner_addr"
START_TIMEOUT = "run.learner_start_timeout"


class Placed(NamedTuple):
    """A script that runs a role apart from the rest of the run."""

    about: str
    serves: tuple[str, ...]  # Keys of addresses that it opens.
    calls: tuple[str, ...]  # Keys of addresses that it connects to.


SCRIPTS = {
    "parallel_env": Placed("one environment", (), (ACTOR,)),
    "parallel_envs": Placed("all environments", (), (ACTOR,)),
    "parallel_replay": Placed("the replay", (REPLAY,), (LOGGER,)),
    "parallel_logger": Placed("the logger", (LOGGER,), ()),
}
# What the rest of the run must name if a role is apart. Processes that join learn other
# addresses from the coordinator.
REMOTE = {
    "run.remote_replay": Placed("the replay", (LOGGER,), (REPLAY,)),
    "run.remote_logger": Placed("the logger", (), (LOGGER,)),
}
LOADERS: dict[str, Callable[[pathlib.Path], Any]] = {
    SERVER_FILE: load_server,
    **{f"{name}.json": bind(load_client, name=name) for name in run_keys.CLIENTS},
}


def needs_env(script: str) -> bool:
    """Whether a script makes environments, whose packages must be there."""
    return script not in ("parallel_replay", "parallel_logger")


def relies_on_spaces(values: Mapping[str, Any]) -> bool:
    """Whether only other machines have the packages of the task.

    Then the log directory must hold its spaces, as `dreamerv3 check-env TASK --spaces`
    writes them.
    """
    if values["script"] != "parallel" or not values["run.remote_envs"]:
        return False
    suite = registry.SUITES.get(registry.suite_of(values["task"]))
    if suite is None or not registry.missing_packages(suite):
        return False
    return (pathlib.Path(values["logdir"]).expanduser() / runfiles.SPACES).exists()


def describe(config: Settings) -> str:
    """A description of a role, printed before it starts."""
    placed = SCRIPTS[config.script]
    rows = {"Role": f"{placed.about} of a run on other machines"}
    if needs_env(config.script):
        rows["Task"] = str(config.task)
    for key in placed.serves:
        rows["Serves"] = str(config[key])
    for key in placed.calls:
        rows["Calls"] = f"{config[key]} (run.{key.partition('.')[2]})"
    rows["Logs"] = str(config.logdir)
    return "\n".join(f"{name + ':':<10}{text}" for name, text in rows.items())


def check(values: Flat) -> list[Problem]:
    """Problems of the addresses and keys of this script."""
    script = values["script"]
    problems = _check_addresses(values)
    if script in SCRIPTS:
        placed = [SCRIPTS[script]]
    else:
        placed = [REMOTE[key] for key in REMOTE if values[key] and script == "parallel"]
    joins = script == "parallel" and values[COORDINATOR] != addresses.AUTO
    for each in placed:
        for key in (*(() if joins else each.serves), *each.calls):
            problems += _check_explicit(key, values[key], each, key in each.calls)
    if script == "parallel_env":
        problems += _check_replica(values)
    problems += _check_learners(values)
    problems += _check_launcher(values)
    if script in (*SCRIPTS, "parallel") and not problems:
        problems += _check_keys(values)
    return problems


def check_open(values: Flat) -> list[Problem]:
    """Problems of opening the addresses at which this script serves."""
    problems = []
    for key in _served(values):
        if addresses.AUTO in values[key]:
            continue
        try:
            addresses.require_openable(addresses.normalize(values[key]))
        except AddressError as error:
            remedy = "give a free port of this machine, or end what has this one"
            problems.append(Problem(key, values[key], str(error), remedy))
    return problems


def _served(values: Flat) -> list[str]:
    """Keys of the addresses that this script opens."""
    script = values["script"]
    if script in SCRIPTS:
        return list(SCRIPTS[script].serves)
    remote = {REPLAY: "run.remote_replay", LOGGER: "run.remote_logger"}
    if script != "parallel":
        return []
    roles = [COORDINATOR, ACTOR, REPLAY, LOGGER]
    roles += [LEARNER] if values[LEARNERS] > 1 else []
    return [key for key in roles if key not in remote or not values[remote[key]]]


def _check_addresses(values: Flat) -> list[Problem]:
    problems = []
    for key in (COORDINATOR, ACTOR, REPLAY, LOGGER, LEARNER):
        if values[key] == addresses.AUTO:
            continue
        try:
            addresses.normalize(values[key])
        except AddressError as error:
            remedy = "for example tcp://10.0.0.5:7001, ipc:///tmp/run.sock or {auto}"
            problems.append(Problem(key, values[key], str(error), remedy))
    return problems


def _check_explicit(key: str, value: str, placed: Placed, calls: bool) -> list[Problem]:
    remedy = "give the address that the other machine can reach, "
    remedy += "for example tcp://10.0.0.5:7001"
    if addresses.AUTO in value:
        rule = f"must be known on both sides if {placed.about} and the rest are apart"
        return [Problem(key, value, rule, remedy)]
    if calls and _is_wildcard(value):
        return [Problem(key, value, "cannot be connected to", remedy)]
    return []


def _is_wildcard(address: str) -> bool:
    return address.rpartition("://")[2].rpartition(":")[0] in WILDCARDS


def _check_learners(values: Flat) -> list[Problem]:
    """Whether the learner can be on several hosts, if it is to be."""
    hosts, script = values[LEARNERS], values["script"]
    if hosts == 1 or not (script == "parallel" or script.startswith("train")):
        return []
    if script != "parallel":
        rule = f"script {script} runs in one process"
        return [Problem(LEARNERS, hosts, rule, "use --script parallel")]
    if not values["run.agent_process"]:
        rule = "needs a process of its own, to start anew if a host is lost"
        remedy = "leave out --run.agent_process False"
        return [Problem(LEARNERS, hosts, rule, remedy)]
    if values["random_agent"]:
        rule = "an agent that acts at random learns nothing"
        return [Problem(LEARNERS, hosts, rule, "leave one of the two out")]
    ways = hosts * len(values["jax.train_devices"]) // max(1, values["jax.mesh"][2])
    if values["batch_size"] % ways:
        rule = f"must be a multiple of {ways}, as {hosts} hosts share a batch"
        remedy = f"for example {-(-values['batch_size'] // ways) * ways}"
        return [Problem("batch_size", values["batch_size"], rule, remedy)]
    if values[LEARNER].startswith("ipc://"):
        rule, remedy = "other hosts cannot reach it", "give tcp://HOST:PORT"
        return [Problem(LEARNER, values[LEARNER], rule, remedy)]
    if values[START_TIMEOUT] > values["run.agent_timeout"]:
        rule = "must not exceed run.agent_timeout, as a host that waits looks hung"
        remedy = f"give --run.agent_timeout {values[START_TIMEOUT]:g} or more as well"
        return [Problem(START_TIMEOUT, values[START_TIMEOUT], rule, remedy)]
    for key in (LEARNER, COORDINATOR):  # JAX opens a port of the same host.
        if _is_wildcard(values[key]):
            rule = "other hosts need the number or name of this one"
            remedy = "for example tcp://10.0.0.5:7000"
            return [Problem(key, values[key], rule, remedy)]
    return []


def _check_launcher(values: Flat) -> list[Problem]:
    """Whether the environments can be run on a Ray cluster, if they are to be."""
    if values["launcher"] != launch.RAY:
        return []
    if values["script"].startswith("train"):
        rule = f"script {values['script']} runs in one process"
        return [Problem("launcher", launch.RAY, rule, "use --script parallel")]
    if values["script"] != "parallel":  # Another look at a run, or a part of it.
        return []
    if importlib.util.find_spec("ray") is None:
        remedy = extras.install_line("ray")
        return [Problem("launcher", launch.RAY, "its package is missing", remedy)]
    if values["run.remote_envs"]:
        remedy = "leave out one of the two"
        rule = "environments are either started by hand or on the cluster"
        return [Problem("run.remote_envs", True, rule, remedy)]
    try:
        cluster = discovery.look(values["ray.address"])
    except discovery.AbsentError as error:
        rule = f"there is no Ray cluster ({error})"
        remedy = "start one by `ray start --head`, join one by `ray start --address "
        remedy += "HOST:PORT`, or give --ray.address"
        return [Problem("ray.address", values["ray.address"], rule, remedy)]
    problems = []
    for key in (COORDINATOR, ACTOR):
        problems += _check_reach(key, values[key], cluster)
    return problems or ray_job.check(values, cluster, _served(values))


def _check_reach(key: str, address: str, cluster: discovery.Cluster) -> list[Problem]:
    """Whether environments on other machines of the cluster find this one."""
    if address == addresses.AUTO:
        return []
    local = cluster.nodes > 1 and addresses.is_local(addresses.normalize(address))
    if address.startswith("ipc://") or _is_wildcard(address) or local:
        rule = "is not where other machines of the cluster reach this one"
        remedy = f"for example tcp://{cluster.host}:7001, or {addresses.AUTO}"
        return [Problem(key, address, rule, remedy)]
    return []


def _check_replica(values: Flat) -> list[Problem]:
    amount = values["run.envs"] + values["run.eval_envs"]
    if values["replica"] < amount:
        return []
    rule = f"the run has environments 0 to {amount - 1}, evaluation ones last"
    remedy = "give one of them, or the run's own run.envs and run.eval_envs"
    return [Problem("replica", values["replica"], rule, remedy)]


def _check_keys(values: Flat) -> list[Problem]:
    """Whether the keys are there, which the rest of the run makes, and are sound."""
    given = values["run.key_dir"]
    directory = pathlib.Path(given or f"{values['logdir']}/keys").expanduser()
    for name, need in _wanted_keys(values, directory).items():
        if not (directory / name).exists():
            rule = f"there is no {name}, which {need}"
            remedy = f"copy {name} of the run there; "
            remedy += "`dreamerv3 keys DIRECTORY` makes keys"
            return [Problem("run.key_dir", str(directory), rule, remedy)]
        try:
            LOADERS[name](directory)
        except KeyFileError as error:
            remedy = "repair or copy that file, or make keys by `dreamerv3 keys`"
            return [Problem("run.key_dir", str(directory), str(error), remedy)]
    return []


def _client_file(key: str) -> str:
    """The file of the keys with which a script calls an address."""
    return f"{run_keys.ENV if key == ACTOR else run_keys.CORE}.json"


def _wanted_keys(values: Flat, directory: pathlib.Path) -> dict[str, str]:
    """Files of keys that this script will read, and what for."""
    if values["script"] == "parallel":  # It makes the directory if there is none.
        need = "a run needs if there is a directory of keys"
        return dict.fromkeys(LOADERS, need) if directory.exists() else {}
    placed = SCRIPTS[values["script"]]
    wanted: dict[str, str] = {}
    for key in (*placed.serves, *placed.calls):
        local = addresses.is_local(addresses.normalize(values[key]))
        if local and not values["run.key_dir"] and not directory.exists():
            continue
        name = SERVER_FILE if key in placed.serves else _client_file(key)
        wanted.setdefault(name, f"{key} needs at {values[key]}")
    return wanted
