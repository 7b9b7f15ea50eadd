"""What runs beside the registry while this distributor leads: searches for layouts, scaling, gauges.

May import: all packages below: sync, registry, fitting, prediction, placement, model. Begin with
``layout_jobs``.
"""
