"""The load generator, driven: what is to be sent, a run of it, what comes back and whether it counts.

It may import ``machine``, ``systems`` and ``results``. Begin with ``workload`` and ``run``.
"""
