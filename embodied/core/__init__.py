"""Contracts and the numpy half."""

from embodied import public_names

public_names.extend(__name__)
