"""The authoritative cluster state, and every change of it: brokers, topics, publishers, shares.

May import: model, placement, storage, config, srtm. Begin with ``registry`` (its face), then ``state`` (values and
``commit``). ``distributor.model.leases`` says which changes of shares are allowed.
"""
