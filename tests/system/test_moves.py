"""Publishers that are moved back and forth between real brokers under load: every message arrives once, and each
publisher's in the order in which it was sent."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from srtm.client.publisher import Publisher
from tests.system.moving import Fleet, move

pytestmark = pytest.mark.slow


class NsqFleet(Fleet):
    """Each publisher sends as it is numbered, and waits for no answer before the next."""

    async def publish(self, publisher_id: str) -> None:
        async with (
            Publisher("roads", publisher_id, distributor=self.client) as publisher,
            trio.open_nursery() as nursery,
        ):
            while not self.over:
                nursery.start_soon(publisher.publish, self.numbering.next_body(publisher_id))
                if publisher.address is not None:
                    self.note(publisher_id, publisher.address)
                await trio.sleep(0.01)


async def test_twenty_moves_under_load_lose_and_double_nothing_and_keep_each_publishers_order(tmp_path: Path) -> None:
    with trio.fail_after(150):
        await move(tmp_path, NsqFleet, publishers=6, moves=20)
