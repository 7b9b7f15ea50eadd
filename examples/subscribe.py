"""Print what comes to a channel of the topic, from all of its brokers.

    python examples/subscribe.py [TOPIC [CHANNEL [COUNT]]]

Ends after COUNT messages (5). The distributor is $SRTM_DISTRIBUTOR, or http://127.0.0.1:4190.
"""

import sys

import trio

import srtm


async def main(topic: str = "la-highways", channel: str = "archive", count: str = "5") -> None:
    left = int(count)
    async with srtm.Subscriber(topic, channel) as subscriber:
        async for message in subscriber:
            print(message.body.decode(), "from", message.broker, flush=True)
            await message.finish()  # else it comes again after the message timeout
            left -= 1
            if left == 0:
                return


if __name__ == "__main__":
    trio.run(main, *sys.argv[1:])
