"""Subcommands of `dreamerv3`, one module each with a function `run(argv)`."""
