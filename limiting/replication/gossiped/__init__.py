"""The two designs of a thesis, for comparison: Henriksson and Bennhage, "Trading performance for precision in a
CRDT-based rate-limiting system", 2021. Use ``replicated`` instead: it refuses better and says less.

May import ``limiting.replication`` and ``srtm``. ``counter`` is its baseline (section 3.1), ``queue`` its own (section
4.2). ``gossip`` is what both share. They follow the listings but for misprints, which the modules name. A request costs
one token, and clocks must agree, as there.
"""
