"""The words after `dreamerv3`: one module a command, each with a `main(argv)`."""
