"""A module for each simulated figure: its runs, its panels, what is checked of its claim.

It may import ``lab``, ``simulation`` and ``harness``. Begin with ``fig06``.
"""
