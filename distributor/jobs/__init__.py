"""What runs beside the registry while this distributor leads: fittings, relief, scaling, gauges.

May import: all packages below: sync, registry, relief, fitting, prediction, placement, model. Begin with
``fitting_manager``.
"""
