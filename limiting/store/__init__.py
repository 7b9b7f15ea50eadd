"""Owns the mode ``store``: what subjects have used is in Redis or Valkey, and every node asks there.

Pure but for ``redis``. May import ``srtm.contracts`` and ``srtm.limiting``. Begin with ``shared``; ``rules`` and
``decide.lua`` say together what a check does in the store.
"""
