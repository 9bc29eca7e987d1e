"""The usage example of the launcher of docs/seeds.md, as it stands."""

import sys
from functools import partial as bind

import embodied
from dreamerv3 import environments
from dreamerv3.main import (
    make_agent,
    make_args,
    make_env,
    make_logger,
    make_replay,
    make_stream,
)


def main(*flags):
    config = environments.read_config("dummy_disc", ["--configs", "debug", *flags])
    args = make_args(config)
    embodied.run.parallel.combined(
        bind(make_agent, config),
        bind(make_replay, config, "replay"),
        bind(make_replay, config, "replay_eval", "eval"),
        bind(make_env, config),
        bind(make_env, config),
        bind(make_stream, config),
        bind(make_logger, config),
        args,
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
