"""Environments: the registry and one file a suite."""

from embodied.envs.registry import make as make
from embodied.envs.registry import suites as suites
