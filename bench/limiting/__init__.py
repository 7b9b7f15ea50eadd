"""Limits in virtual time: a network with delays, losses and cuts, traffic, algorithms, and what a run costs.

May import ``limiting`` and ``srtm``. Begin with ``network``, then ``runs``.
"""
