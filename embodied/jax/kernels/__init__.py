"""Functions that have a second form for XLA's CPU back end, which runs it faster.

`dispatch` chooses the form; both give the same values and gradients.
"""
