"""The conversation of a broker with its distributor: reports up, the desired state down, measurements, drains.

May import ``broker.leases``, ``broker.nsqd``, ``broker.runtime``, ``broker.snapshot`` and ``broker.stats``. Begin with
``loop``.
"""
