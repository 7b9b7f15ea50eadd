"""Publish five readings with paho-mqtt (MQTT 5.0), print how long each waits for its token, and what comes of them.

python examples/mqtt_paho.py [HOST [PORT [NAME [CLIENT_ID]]]]      (127.0.0.1 1883 plant/7/heat)
"""

import sys
import threading

import paho.mqtt.client as mqtt
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

READINGS = ("17.5", "17.6", "17.8", "18.1", "18.0")


def main(
    host: str = "127.0.0.1", port: str = "1883", name: str = "plant/7/heat", client_id: str = "example-paho"
) -> None:
    subscribed, all_came = threading.Event(), threading.Semaphore(0)
    client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, client_id, protocol=mqtt.MQTTv5)

    @client.subscribe_callback()
    def on_subscribe(_client, _data, _id, _codes, _properties):
        subscribed.set()

    @client.message_callback()
    def on_message(_client, _data, message):
        print(f"{message.topic}: {message.payload.decode()}")
        all_came.release()

    @client.publish_callback()
    def on_publish(_client, _data, _id, reason, properties):
        wait_ns = dict(getattr(properties, "UserProperty", [])).get("srtm-wait-ns")  # none: of no limited topic here
        print(f"{reason}, waits {int(wait_ns) / 1e6:g} ms for its token" if wait_ns else str(reason))

    wishes = Properties(PacketTypes.CONNECT)
    wishes.UserProperty = ("srtm-receipts", "1")
    client.connect(host, int(port), properties=wishes)
    client.loop_start()
    client.subscribe(name, qos=1)
    subscribed.wait(10)
    for celsius in READINGS:
        client.publish(name, celsius, qos=1)
    for _ in READINGS:
        if not all_came.acquire(timeout=10):
            sys.exit("not all readings came back")
    client.disconnect()
    client.loop_stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
