"""nsqd's ways: its flags and options, nsqlookupd, auth servers, and the file with the list of topics.

May import ``broker.config``, ``broker.events``, ``broker.snapshot`` and ``broker.runtime``. Begin with ``options``.
"""
