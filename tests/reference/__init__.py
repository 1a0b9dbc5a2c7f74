"""Slow, obviously right NumPy mathematics that the kernels are tested against.

Nothing here imports skdpm: a reference built on a kernel is blind to that kernel's errors.
"""
