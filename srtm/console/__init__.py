"""Owns how commands talk: shared options, tables, JSON output, usage errors, calls to the distributor.

May import ``client``, ``net``, ``concurrency`` and ``control``. Begin with ``output``.
"""
