"""The device half: agent facade, sharding, networks, distributions, optimiser."""
