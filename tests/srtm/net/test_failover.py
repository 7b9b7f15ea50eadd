"""Which distributor is asked next, whatever a leader is called and whenever the asking is cut short."""

from __future__ import annotations

import trio

from srtm.log import Log
from srtm.net.failover import Distributors


class Known:
    """A distributor that nobody asks anything."""

    def __init__(self, base_url: str) -> None:
        self.base_url = base_url
        self.closed = False

    async def request(self, method: str, target: str, body: bytes = b"", *, timeout_s: float) -> tuple[int, bytes]:
        raise NotImplementedError

    async def aclose(self) -> None:
        self.closed = True
        await trio.lowlevel.checkpoint()


async def test_only_the_latest_foreign_leader_is_kept_also_where_the_change_is_cut_short() -> None:
    made: list[Known] = []

    def connect(url: str) -> Known:
        made.append(Known(url))
        return made[-1]

    distributors = Distributors([Known("http://d1:1")], connect, Log("b1"))
    await distributors.choose_next("http://d2:1")
    with trio.CancelScope() as scope:
        scope.cancel()
        await distributors.choose_next("http://d3:1")
    await distributors.choose_next("http://d4:1")
    assert distributors.first.base_url == "http://d4:1"
    assert {one.base_url for one in distributors} == {"http://d1:1", "http://d4:1"}
    assert [one.closed for one in made] == [True, True, False]


async def test_the_token_goes_to_no_leader_in_clear_that_was_named_over_tls() -> None:
    said: list[str] = []
    made: list[Known] = []

    def connect(url: str) -> Known:
        made.append(Known(url))
        return made[-1]

    distributors = Distributors([Known("https://d1:1"), Known("https://d2:1")], connect, Log("b1", said.append))
    await distributors.choose_next("http://d3:1")
    assert (made, distributors.first.base_url) == ([], "https://d2:1")
    assert "names http://d3:1, without TLS" in said[0]
    await distributors.choose_next("https://d3:1")
    assert distributors.first.base_url == "https://d3:1"
