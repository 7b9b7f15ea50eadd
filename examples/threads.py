"""Publish from ordinary threads: a trio loop in a thread of its own owns the publisher.

    python examples/threads.py [TOPIC [PUBLISHER_ID]]

The same works beside asyncio: `await asyncio.to_thread(publish, b"...")`.
"""

import sys
import threading
from concurrent.futures import Future

import trio

import srtm

topic, publisher_id = (*sys.argv[1:], *("la-highways", "sensor-8")[len(sys.argv) - 1 :])
ready: Future[tuple[trio.lowlevel.TrioToken, srtm.Publisher, trio.Event]] = Future()


async def run_publisher() -> None:
    try:
        async with srtm.Publisher(topic, publisher_id) as publisher:
            stop = trio.Event()
            ready.set_result((trio.lowlevel.current_trio_token(), publisher, stop))
            await stop.wait()
    except BaseException as error:
        if not ready.done():
            ready.set_exception(error)
        raise


threading.Thread(target=trio.run, args=(run_publisher,), daemon=True).start()
token, publisher, stop = ready.result()


def publish(body: bytes) -> float:
    """Publish from any thread. Return how long the message waits for its token, in ms."""
    receipt = trio.from_thread.run(publisher.publish, body, trio_token=token)
    return receipt.wait_ms or 0.0


for number in range(5):
    print(f"reading {number} waits {publish(f'reading {number}'.encode())} ms")
trio.from_thread.run_sync(stop.set, trio_token=token)
