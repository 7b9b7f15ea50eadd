"""Read a channel of the topic with pynsq, an NSQ client that knows nothing of SRTM.

    python examples/pynsq_consumer.py [TOPIC [CHANNEL [COUNT]]]

Needs `pip install pynsq`. Ends after COUNT messages (5).
"""

import os
import sys

import nsq
from tornado.ioloop import IOLoop

topic, channel, count = (*sys.argv[1:], *("la-highways", "archive", "5")[len(sys.argv) - 1 :])
left = int(count)


def handle(message: nsq.Message) -> bool:
    global left
    print(message.body.decode(), flush=True)
    left -= 1
    if left == 0:
        # Stop after this message has been finished.
        IOLoop.current().call_later(0.1, IOLoop.current().stop)
    return True  # True finishes the message, False requeues it


nsq.Reader(
    topic=topic,
    channel=channel,
    message_handler=handle,
    # The distributor answers lookups as nsqlookupd does.
    lookupd_http_addresses=[os.environ.get("SRTM_DISTRIBUTOR", "http://127.0.0.1:4190")],
    lookupd_poll_interval=1,
    # Shared by all brokers of the topic. With pynsq's default of 1 they are read in turn, which adds seconds.
    max_in_flight=200,
)
IOLoop.current().start()
