"""Settings and checkpoints of the public DreamerV3 implementation."""
