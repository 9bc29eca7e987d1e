"""DreamerV3 as pure functions of arrays, readable beside the paper."""
