"""The recorded sensors of Los Angeles, the demo's topic and the simulator's calibrated parameters.

It imports no other package of bench. Begin with ``README.md``.
"""
