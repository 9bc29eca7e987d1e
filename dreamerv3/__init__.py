"""The DreamerV3 agent and its command line."""
