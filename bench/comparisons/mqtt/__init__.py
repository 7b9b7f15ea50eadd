"""The rows of ``srtm bench mqtt``: our broker by its MQTT port beside Mosquitto, under the same load in turns.

It may import ``rows`` and ``harness``. Begin with ``started``.
"""
