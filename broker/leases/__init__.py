"""The shares that a broker holds, as the distributor grants them and brokers exchange them; and its contracts.

May import ``broker.history``, ``broker.snapshot`` and ``adaptor``. Begin with ``lease_holder``.
"""
