"""`dreamerv3 completion`: a script that completes commands, keys, blocks and tasks."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence

from dreamerv3.commands.base import COMMANDS, run_module
from dreamerv3.settings import config, flags
from embodied.envs import registry

SWITCHES = ("--configs", "--help", "--dry-run", "--quiet", "--seeds", "--version")
BASH = """\
_dreamerv3() {{
  local word="${{COMP_WORDS[COMP_CWORD]}}" before="${{COMP_WORDS[COMP_CWORD-1]}}"
  case "$before" in
    --configs) COMPREPLY=($(compgen -W "{blocks}" -- "$word")) ;;
    --script) COMPREPLY=($(compgen -W "{scripts}" -- "$word")) ;;
    --task) COMPREPLY=($(compgen -W "{tasks}" -- "$word") $(compgen -f -- "$word")) ;;
    *) case "$word" in
         --*) COMPREPLY=($(compgen -W "{keys}" -- "$word")) ;;
         *) COMPREPLY=($(compgen -f -- "$word"))
            [ "$COMP_CWORD" -eq 1 ] &&
              COMPREPLY=($(compgen -W "{commands}" -- "$word")) ;;
       esac ;;
  esac
}}
complete -o filenames -F _dreamerv3 dreamerv3
"""
ZSH = "autoload -Uz bashcompinit compinit && compinit && bashcompinit\n" + BASH
FISH = """\
complete -c dreamerv3 -n __fish_use_subcommand -xa '{commands}'
complete -c dreamerv3 -l configs -xa '{blocks}'
complete -c dreamerv3 -l script -xa '{scripts}'
complete -c dreamerv3 -l task -a '{tasks}'
complete -c dreamerv3 -n 'string match -q -- "--*" (commandline -ct)' -a '{keys}'
"""
SHELLS = {"bash": BASH, "zsh": ZSH, "fish": FISH}


def run(argv: Sequence[str]) -> None:
    """Print the script for a shell."""
    parser = argparse.ArgumentParser(
        "dreamerv3 completion",
        description="Print a script that completes commands, keys, blocks and tasks.",
        epilog='Example: eval "$(dreamerv3 completion bash)" in ~/.bashrc; for fish: '
        "dreamerv3 completion fish > ~/.config/fish/completions/dreamerv3.fish",
        allow_abbrev=False,
    )
    parser.add_argument("shell", choices=SHELLS)
    print(script(parser.parse_args(argv).shell), end="")


def script(shell: str) -> str:
    """What the shell has to run to complete our command line."""
    blocks = config.read_blocks()
    return SHELLS[shell].format(
        commands=_join((flags.TRAIN, flags.HELP, *COMMANDS)),
        blocks=_join(blocks.presets),
        scripts=_join(flags.SCRIPTS),
        tasks=_join(f"{name}_" for name in registry.SUITES),
        keys=_join((*SWITCHES, *(f"--{key}" for key in blocks.defaults))),
    )


def _join(names: Iterable[str]) -> str:
    return " ".join(names)


if __name__ == "__main__":
    run_module(__file__)
