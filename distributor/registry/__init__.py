"""The authoritative cluster state, and every change of it.

May import: model, placement, storage, config, srtm. Begin with ``registry`` (its face), then ``state`` (values and
``commit``).
"""
