"""The shares that a broker holds: as the distributor grants them, and as brokers exchange them.

May import ``broker.history``, ``broker.snapshot`` and ``adaptor``. Begin with ``lease_holder``.
"""
