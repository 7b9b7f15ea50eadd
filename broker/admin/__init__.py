"""The HTTP interface of a broker: nsqd's routes and ours.

May import every other package of ``broker`` but ``history``. Begin with ``router``.
"""
