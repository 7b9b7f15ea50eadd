"""The HTTP interface of the limit service. Begin with ``app``.

May import ``limiting.contract_store``, ``limiting.config``, ``srtm.limiting`` and ``srtm.web``.
"""
