"""The distributed run: one role, one file, in the order of the data path."""

from embodied.run.parallel.actor import parallel_actor as parallel_actor
from embodied.run.parallel.agent import parallel_agent as parallel_agent
from embodied.run.parallel.env import parallel_env as parallel_env
from embodied.run.parallel.env import parallel_envs as parallel_envs
from embodied.run.parallel.launch import combined as combined
from embodied.run.parallel.learner import parallel_learner as parallel_learner
from embodied.run.parallel.learner import parallel_stream as parallel_stream
from embodied.run.parallel.logger import parallel_logger as parallel_logger
from embodied.run.parallel.placed import place as place
from embodied.run.parallel.replay import parallel_replay as parallel_replay
