"""Messages that are numbered by publisher, so that one that is lost, doubled or overtaken is seen."""

from __future__ import annotations

from collections import defaultdict

import trio

from srtm.client.subscriber import Subscriber


class Numbering:
    """``sent``: how many each publisher has made; ``came``: the numbers that arrived of each, in order.

    ``once``: what comes again counts too, and is out of order. Else it may come again, as by MQTT's QoS 1.
    """

    def __init__(self, *, once: bool = True) -> None:
        self._once = once
        self.sent: dict[str, int] = defaultdict(int)
        self.came: dict[str, list[int]] = defaultdict(list)
        self._changed = trio.Event()

    def next_body(self, publisher_id: str) -> bytes:
        """0, 1, 2, ... of that publisher."""
        number = self.sent[publisher_id]
        self.sent[publisher_id] += 1
        return f"{publisher_id} {number}".encode()

    async def take_all(self, subscriber: Subscriber) -> None:
        async for delivery in subscriber:
            publisher_id, number = delivery.body.decode().split()
            if self._once or int(number) not in self.came[publisher_id]:
                self.came[publisher_id].append(int(number))
            await delivery.finish()
            self.tell()

    def tell(self) -> None:
        """Whoever waits looks again."""
        self._changed.set()
        self._changed = trio.Event()

    async def changed(self) -> None:
        await self._changed.wait()

    async def until_all_came(self, within_s: float = 30.0) -> None:
        with trio.move_on_after(within_s):
            while {name: len(numbers) for name, numbers in self.came.items()} != self.sent:
                await self.changed()
            return
        missing = {name: sorted(set(range(sent)) - set(self.came[name])) for name, sent in self.sent.items()}
        raise AssertionError(f"not all came within {within_s:g} s: of {dict(self.sent)} sent, these did not: {missing}")

    @property
    def out_of_order(self) -> dict[str, list[tuple[int, int]]]:
        """{publisher: (expected, came) where these part}, of those where they do."""
        parted = {
            name: [(place, number) for place, number in enumerate(numbers) if place != number]
            for name, numbers in self.came.items()
        }
        return {name: places for name, places in parted.items() if places}
