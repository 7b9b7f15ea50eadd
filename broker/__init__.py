"""One broker: the engine owns every message (``broker/engine``, Rust); this package runs it.

Reading order: ``config``, ``process`` and ``service`` (all parts, and the nursery), ``starting`` (the engine's start
and end), ``topic_list`` and ``metadata`` (what comes back after a restart), ``introductions`` and ``lookup``
(discovery), ``authorizing`` and ``auth``, ``admin`` (HTTP), ``membership`` (the conversations with distributors, of
which ``distributors`` finds the leader): ``sync`` and ``lease_holder`` (this broker's share), ``measurement`` and
``measured`` (how late messages are, as the distributor asks), ``histories`` and ``bins`` (what comes to topics),
``exchanges`` and ``gdrl_agent`` (tokens among brokers); ``processors`` and ``throttling`` (what others take of them),
``snapshot``, ``events`` and ``reports`` (what the engine tells).
"""
