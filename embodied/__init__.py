"""Contracts, environments, replay, streams and run loops; imports no JAX."""

from embodied import envs as envs
from embodied import public_names
from embodied import replay as replay
from embodied import run as run
from embodied import streams as streams
from embodied.core.base import Agent as Agent
from embodied.core.base import Env as Env
from embodied.core.base import Space as Space
from embodied.core.base import Stream as Stream
from embodied.core.base import special_spaces as special_spaces
from embodied.core.base import special_values as special_values
from embodied.core.checkpoint import Checkpoint as Checkpoint
from embodied.core.driver import Driver as Driver
from embodied.core.episodes import EpisodeTracker as EpisodeTracker
from embodied.core.random_agent import RandomAgent as RandomAgent
from embodied.replay import Replay as Replay

public_names.install()
public_names.extend(__name__)
