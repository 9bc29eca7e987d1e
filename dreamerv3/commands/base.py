"""What commands there are, and how one says that it cannot do what was asked."""

from __future__ import annotations

# A command's module is dreamerv3.commands.NAME, with _ for -. It is imported only when
# the command runs, so that a machine needs only that command's packages.
COMMANDS: dict[str, str] = {
    "keys": "Make the keys of a run over a network.",
    "view": "Look at runs in the browser, also while they train.",
    "plot": "Draw learning curves of many runs and seeds into a file.",
    "report": "Write one HTML file about a run, to send to someone.",
    "eval": "Play episodes with a trained agent: mean score, interval, video.",
    "export": "Write a trained policy to one file that needs only JAX.",
    "env": "Join a running training with environments of this machine.",
    "learner": "Join a running training as one more host of its learner.",
    "check-env": "Try out an environment and say what is wrong with it.",
    "envs": "List the suites, what is installed, and how to install the rest.",
}


class CommandError(Exception):
    """A command cannot do what was asked, for a reason that the message explains."""
