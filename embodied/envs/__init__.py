"""Environments: the registry and one file a suite."""

from embodied import public_names
from embodied.envs.registry import make as make
from embodied.envs.registry import suites as suites

public_names.extend(__name__)
