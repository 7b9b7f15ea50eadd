"""What takes long is made in portions, and others get their turn between them."""

from __future__ import annotations

from collections.abc import Iterator

import trio

from srtm.concurrency.portions import in_portions


async def test_others_run_after_each_portion() -> None:
    happened: list[str] = []

    def made() -> Iterator[int]:
        for number in range(6):
            happened.append(f"made {number}")
            yield number

    async def other() -> None:
        while True:
            happened.append("other")
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(other)
        assert await in_portions(made(), 2) == list(range(6))
        nursery.cancel_scope.cancel()
    # Trio shuffles who is next: of two turns in a row one may be ours, of three not all.
    assert "other" in happened[happened.index("made 1") : happened.index("made 4")]
