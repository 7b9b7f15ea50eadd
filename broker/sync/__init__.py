"""The conversation of a broker with its distributor: reports up, the desired state down, measurements, drains.

May import ``broker.leases``, ``broker.nsqd``, ``broker.runtime`` and ``broker.snapshot``. Begin with ``loop``.
"""
