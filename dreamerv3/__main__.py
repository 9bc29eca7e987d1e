"""`python -m dreamerv3` is the `dreamerv3` command."""

from dreamerv3.cli import cli

if __name__ == "__main__":
    cli()
