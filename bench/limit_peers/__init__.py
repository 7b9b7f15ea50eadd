"""Owns the limiters that stand beside ours: how each is started, and how both are asked.

May import ``bench.harness.systems`` and ``srtm``. Begin with ``servers``.
"""
