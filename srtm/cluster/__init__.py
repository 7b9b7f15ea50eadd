"""Owns the processes of a cluster on this host, as ``srtm up`` runs them: start, restart, addresses, tokens.

May import ``client``, ``net``, ``concurrency`` and ``control``. Begin with ``supervisor.cluster``.
"""
