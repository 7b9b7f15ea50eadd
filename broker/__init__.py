"""One broker: the engine owns every message (``broker/engine``, Rust); this package runs it.

Reading order: ``config``, ``service`` (the nursery), ``admin`` (HTTP), ``membership`` (the conversations with
distributors, of which ``distributors`` finds the leader): ``sync`` and ``lease_holder`` (this broker's share),
``measurement`` and ``measured`` (how late messages are, as the distributor asks), ``histories`` and ``bins`` (what
comes to topics); ``processors`` and ``throttling`` (what others take of them), ``lookup`` (discovery), ``snapshot``,
``events`` and ``reports`` (what the engine tells).
"""
