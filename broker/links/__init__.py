"""Links between brokers for MQTT's subscribers: what is wanted where, and which links there are. The engine carries the
messages. Begin with ``keeper``; ``docs/mqtt.md`` ("Several brokers") has the shape.
"""
