"""Publish from ordinary threads, and read what comes: `srtm.blocking` needs no event loop.

    python examples/threads.py [TOPIC [PUBLISHER_ID [CHANNEL]]]

Any number of threads may share a publisher or a subscriber.
"""

import sys
from concurrent.futures import ThreadPoolExecutor

from srtm import blocking

topic, publisher_id, channel = (*sys.argv[1:], *("la-highways", "sensor-8", "threads")[len(sys.argv) - 1 :])

with (
    blocking.Subscriber(topic, channel) as subscriber,
    blocking.Publisher(topic, publisher_id) as publisher,
    ThreadPoolExecutor(5) as threads,
):
    readings = [f"reading {number}".encode() for number in range(5)]
    for receipt in threads.map(publisher.publish, readings):
        print(f"waits {receipt.wait_ms} ms for its token")
    for _ in readings:
        with subscriber.receive(timeout_s=30) as delivery:  # finished at the end of this block
            print(delivery.body.decode(), "from", delivery.broker)
