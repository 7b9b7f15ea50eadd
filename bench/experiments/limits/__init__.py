"""Owns the figures on limits of clients: the thesis's data sets, hot subjects, windows.

May import ``bench.experiments.lab``, ``bench.limiting`` and what measures. Begin with ``replicated``.
"""
