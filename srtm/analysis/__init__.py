"""Owns what is computed from recorded traffic: arrivals, correlation groups, a sized bucket, the DRL penalty.

Pure: no socket, no clock. May import ``token_bucket``, ``topics`` and, for decoding errors, ``net``. Begin with
``arrivals``, which reads a recording.
"""
