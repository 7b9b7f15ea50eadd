"""What HTTP reaches while the lead comes and goes: in memory, on a simulated clock."""

import httpx
import pytest
import trio
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from distributor.leadership.front_door import FrontDoor


def says(text: str, wait_s: float = 0.0) -> Starlette:
    async def answer(_request) -> PlainTextResponse:
        await trio.sleep(wait_s)
        return PlainTextResponse(text)

    return Starlette(routes=[Route("/", answer)])


@pytest.fixture
def front() -> FrontDoor:
    return FrontDoor(says("standby"))


async def get(front: FrontDoor) -> httpx.Response:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(front), base_url="http://d") as client:
        return await client.get("/")


async def test_the_leaders_application_answers_while_it_leads_and_the_standbys_before_and_after(front):
    assert (await get(front)).text == "standby"
    with front.show_leader(says("leader"), lambda: True):
        assert (await get(front)).text == "leader"
    assert (await get(front)).text == "standby"


async def test_an_answer_that_begins_when_the_lead_is_not_sure_any_more_is_replaced_by_a_refusal(front, autojump_clock):
    with front.show_leader(says("a grant", wait_s=2), lambda: trio.current_time() < 1):
        answer = await get(front)
    assert answer.status_code == 503
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["title"] == "standby"
    assert "grant" not in answer.text


async def test_a_long_poll_is_answered_as_soon_as_the_lead_ends(front, autojump_clock):
    answers = []

    async def poll() -> None:
        answers.append(await get(front))

    async with trio.open_nursery() as nursery:
        with front.show_leader(says("leader", wait_s=30), lambda: True):
            nursery.start_soon(poll)
            await trio.sleep(1)
    assert trio.current_time() < 2
    assert [one.json()["title"] for one in answers] == ["standby"]


@pytest.mark.parametrize(("is_sure", "status"), [(True, 200), (False, 503)], ids=["an answer", "a refusal"])
async def test_what_goes_out_slowly_while_the_lead_ends_goes_out_whole(front, autojump_clock, is_sure, status):
    sent = []

    async def slowly(message) -> None:
        await trio.sleep(1)
        sent.append(message)

    async with trio.open_nursery() as nursery:
        with front.show_leader(says("leader"), lambda: is_sure):
            nursery.start_soon(front, {"type": "http", "method": "GET", "path": "/", "headers": []}, nothing, slowly)
            await trio.sleep(0.5)
    assert [message["type"] for message in sent] == ["http.response.start", "http.response.body"]
    assert sent[0]["status"] == status


async def nothing():
    await trio.sleep_forever()
