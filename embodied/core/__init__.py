"""Contracts and the numpy half."""
