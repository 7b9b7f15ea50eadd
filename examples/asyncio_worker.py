"""Publish under asyncio, and handle several messages at a time.

    python examples/asyncio_worker.py [TOPIC [PUBLISHER_ID [CHANNEL]]]

Under trio the same code runs with `trio.run(main)`.
"""

import asyncio
import sys

import srtm

COUNT = 5


async def main(topic: str = "la-highways", publisher_id: str = "sensor-9", channel: str = "asyncio") -> None:
    handled = asyncio.Semaphore(0)

    async def handle(delivery: srtm.Delivery) -> None:  # finished when this returns, requeued if it raises
        await asyncio.sleep(0.01)  # here: a database, another service
        print(delivery.body.decode(), "handled")
        handled.release()

    async with srtm.Subscriber(topic, channel) as subscriber:
        worker = asyncio.create_task(subscriber.handle_each(handle, concurrency=3))
        async with srtm.Publisher(topic, publisher_id) as publisher:
            receipts = await asyncio.gather(*(publisher.publish(f"event {n}".encode()) for n in range(COUNT)))
            print("longest wait for a token:", max(receipt.wait_ms or 0.0 for receipt in receipts), "ms")
        for _ in range(COUNT):
            await handled.acquire()
        worker.cancel()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
