"""Commands for those who run a cluster: is it ready, is this machine fit, do the settings make sense.

Begin with ``waiting``. May import what ``srtm.commands`` may, but no service.
"""
