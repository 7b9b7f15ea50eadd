"""Checks of brokers and distributors that are killed, stopped or cut off, for ``make soak`` and short tests.

They may import ``bench.harness``. Begin with ``crash`` and ``lease_soak``.
"""
