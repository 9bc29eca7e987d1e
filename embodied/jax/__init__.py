"""The device half: agent facade, sharding, networks, distributions, optimiser."""

from embodied import public_names

public_names.extend(__name__)
