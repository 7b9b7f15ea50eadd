"""The host that a broker runs on: data directory, addresses, TLS files, processors, health.

May import ``broker.config``. Begin with ``data_directory``.
"""
