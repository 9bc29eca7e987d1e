"""Settings that a program of one's own may leave out."""

import elements

from dreamerv3 import config
from embodied.run.parallel import options


def test_defaults_are_those_of_the_command():
    known = config.read_blocks().defaults
    block = {f"run.{key}": value for key, value in options.DEFAULTS.items()}
    for key, value in (block | options.OTHERS).items():
        assert known[key] == value, key


def test_what_is_given_stays():
    args = elements.Config(logdir="here", envs=3, usage={"psutil": True})
    found = options.complete(args)
    assert (found.logdir, found.envs, found.usage.psutil) == ("here", 3, True)
    assert found.budget == options.DEFAULTS["budget"]
    assert options.complete(found) is found
