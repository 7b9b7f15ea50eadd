"""The policy that moves load off a broker that breaks a promise, without I/O.

May import: model, prediction, fitting, config, srtm. Begin with ``policy``.
"""
