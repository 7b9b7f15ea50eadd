"""The paper's seven hosts on one machine: network namespaces around a bridge, and one clock for all.

It may import ``console`` and ``harness``. Begin with ``net.layout`` (who is there), then ``owner`` (the life of a
testbed) and ``session`` (a run on it).
"""
