"""One broker: the engine (``broker/engine``, Rust) owns every message, this package owns the decisions around it.

May import ``srtm`` and, for the exchange of tokens, ``adaptor``. Begin with ``service``, which puts the parts together:
``runtime`` (the host), ``nsqd`` (nsqd's ways), ``stats`` (counters out), ``history`` (arrivals to the distributor),
``leases`` (shares held here), ``sync`` (the conversation with the distributor), ``admin`` (HTTP). ``snapshot`` and
``events`` are the engine's words, typed; ``config`` the settings; ``startup`` the engine's start and end; ``member``
the conversations of a member of a cluster.
"""
