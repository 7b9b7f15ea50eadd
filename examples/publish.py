"""Publish five readings as one sensor of the topic, and print how long each waits for its token.

    python examples/publish.py [TOPIC [PUBLISHER_ID]]

The distributor is $SRTM_DISTRIBUTOR, or http://127.0.0.1:4190.
"""

import sys

import trio

import srtm


async def main(topic: str = "la-highways", publisher_id: str = "sensor-7") -> None:
    async with srtm.Publisher(topic, publisher_id) as publisher:
        for celsius in (17.5, 17.6, 17.8, 18.1, 18.0):
            receipt = await publisher.publish(str(celsius).encode())  # bodies are bytes
            print(f"{celsius} accepted by {publisher.address}, waits {receipt.wait_ms} ms for its token")


if __name__ == "__main__":
    trio.run(main, *sys.argv[1:])
