"""``srtm mqtt ...``: what operators see and end of MQTT.

Imports ``srtm.client``, ``srtm.console`` and ``srtm.control``. Begin with ``operator_commands``.
"""
