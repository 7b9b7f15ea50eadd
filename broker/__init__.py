"""One broker: the engine owns every message (``broker/engine``, Rust); this package runs it.

Reading order: ``config``, ``service`` (the nursery), ``admin`` (HTTP), ``sync`` and ``lease_holder`` (this broker's
share), ``lookup`` (discovery), ``snapshot``, ``events`` and ``reports`` (what the engine tells).
"""
