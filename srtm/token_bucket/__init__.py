"""Owns the theory of the token bucket: the exact bucket, replay of arrivals, splits into shares, burst sizing.

Pure: no socket, no clock. May import ``topics`` and ``units``. Begin with ``bucket``; ``replay`` gives delays of
columns, ``fitted_split`` the shares of brokers.
"""
