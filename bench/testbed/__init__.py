"""The paper's seven hosts on one machine: network namespaces around a bridge, and one clock for all.

Read in this order: ``layout`` (who is there), ``shaping`` and ``names`` (pure as well), ``means`` (what the machine can
do), ``network``, ``shares`` and ``frames`` (which make it so), ``owner`` (the life of a testbed), ``remains`` (what a
dead owner left), ``session`` (a run on it).
"""
