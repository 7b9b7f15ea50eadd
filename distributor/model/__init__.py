"""The values of the distributor: brokers, topics, shares, loads, and the pure rules that belong to them.

May import: srtm only. Begin with ``cluster`` (what there is), then ``leases`` (how shares change).
"""
