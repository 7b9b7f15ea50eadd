"""A page of this service may change things; a page of another site may not, whoever looks at it."""

from __future__ import annotations

import socket
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import httpx
import pytest
from fastapi import FastAPI, Request

from srtm.net.tokens import Tokens
from srtm.web.browser import COOKIE, OtherSites, add_page, authorization
from srtm.web.refusals import CheckedFirst, add_refusals

TOKENS = Tokens.parsed("tokens", "operator ann o\nclient cars c\n")


def client(folder: Path, tokens: Tokens | None = TOKENS, **cookies: str) -> httpx.AsyncClient:
    (folder / "index.html").write_text("<p>page")
    (folder / "app.js").write_text("1")
    (folder / "notes.txt").write_text("secret")
    app = FastAPI()
    add_page(app, folder, tokens)

    @app.post("/change")
    async def change() -> str:
        return "changed"

    add_refusals(app)
    app.add_middleware(CheckedFirst, admit=OtherSites(tokens, "limits.example:4196", "d.example").refuse)
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://d", cookies=cookies)


@pytest.mark.parametrize(
    ("headers", "cookies", "status"),
    [
        ({}, {}, 200),  # a program
        ({"Sec-Fetch-Site": "same-origin"}, {COOKIE: "o"}, 200),
        ({"Origin": "http://d"}, {COOKIE: "o"}, 200),
        ({"Authorization": "Bearer o"}, {COOKIE: "o"}, 200),
        ({"Sec-Fetch-Site": "cross-site"}, {}, 403),  # without tokens, too
        ({"Sec-Fetch-Site": "same-site"}, {COOKIE: "o"}, 403),  # another port of the host
        ({"Origin": "http://evil"}, {}, 403),
        ({"Origin": "null"}, {}, 403),
        ({"Origin": "http://[::1"}, {}, 403),
        ({"Origin": "http://d:81"}, {COOKIE: "o"}, 403),
        ({}, {COOKIE: "o"}, 403),  # a browser that says nothing
    ],
)
async def test_only_this_services_page_and_programs_may_change_anything(
    tmp_path: Path, headers: dict[str, str], cookies: dict[str, str], status: int
) -> None:
    async with client(tmp_path, **cookies) as http:
        assert (await http.post("/change", headers=headers)).status_code == status


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("evil.example", 403),
        ("evil.example:4190", 403),
        ("localhost.evil.example", 403),
        ("127.0.0.1.evil.example", 403),
        ("[::1", 403),
        ("127.0.0.1:4190", 200),
        ("[::1]:4190", 200),
        ("LOCALHOST:4190", 200),
        ("srtm.localhost", 200),
        ("limits.example", 200),
        ("d.example.:4190", 200),
        (socket.gethostname(), 200),
    ],
)
async def test_without_tokens_a_name_of_another_site_is_not_this_service(
    tmp_path: Path, host: str, status: int
) -> None:
    async with client(tmp_path, None) as http:
        for said in ({"Origin": f"http://{host}"}, {"Sec-Fetch-Site": "same-origin"}):
            answer = await http.post("/change", headers={"Host": host, **said})
            assert answer.status_code == status
        assert (await http.post("/change", headers={"Host": host})).status_code == 200, "a program"
    async with client(tmp_path) as http:
        answer = await http.post("/change", headers={"Host": host, "Sec-Fetch-Site": "same-origin"})
        assert answer.status_code == 200, "no cookie of the service's name goes there"


async def test_an_operators_token_becomes_a_cookie_that_no_script_reads(tmp_path: Path) -> None:
    async with client(tmp_path) as http:
        assert (await http.get("/session")).json() == {"needed": True, "name": None}
        answer = await http.post("/session", content=" o\n")
        assert answer.status_code == 204
        said = answer.headers["Set-Cookie"]
        assert "HttpOnly" in said
        assert "SameSite=strict" in said
        assert (await http.get("/session")).json() == {"needed": True, "name": "ann"}
        await http.delete("/session", headers={"Sec-Fetch-Site": "same-origin"})
        assert (await http.get("/session")).json() == {"needed": True, "name": None}


async def test_behind_tls_the_cookie_goes_nowhere_else(tmp_path: Path) -> None:
    async with client(tmp_path) as http:
        answer = await http.post("https://d/session", content="o")
        assert "Secure" in answer.headers["Set-Cookie"]


@pytest.mark.parametrize("token", ["c", "wrong", "", "\u00e4"])
async def test_no_other_token_signs_in(tmp_path: Path, token: str) -> None:
    async with client(tmp_path) as http:
        answer = await http.post("/session", content=token.encode())
        assert answer.status_code == 400
        assert "Set-Cookie" not in answer.headers
        assert answer.json()["value"] == "(not shown)"


async def test_without_tokens_nobody_signs_in(tmp_path: Path) -> None:
    async with client(tmp_path, None) as http:
        assert (await http.get("/session")).json() == {"needed": False, "name": None}


async def test_the_page_may_load_nothing_from_elsewhere_and_is_in_no_frame(tmp_path: Path) -> None:
    async with client(tmp_path) as http:
        for path in ("/", "/page/app.js"):
            policy = (await http.get(path)).headers["Content-Security-Policy"]
            assert "default-src 'self'" in policy
            assert "frame-ancestors 'none'" in policy


async def test_a_file_is_sent_once_while_it_stays_the_same(tmp_path: Path) -> None:
    async with client(tmp_path) as http:
        tag = (await http.get("/page/app.js")).headers["ETag"]
        assert (await http.get("/page/app.js", headers={"If-None-Match": tag})).status_code == 304


@pytest.mark.parametrize("name", ["notes.txt", "..%2Findex.html", "nope.js"])
async def test_nothing_but_assets_is_served(tmp_path: Path, name: str) -> None:
    async with client(tmp_path) as http:
        assert (await http.get(f"/page/{name}")).status_code == 404


def test_a_programs_header_counts_more_than_a_cookie() -> None:
    both = SimpleNamespace(headers={"Authorization": "Bearer a"}, cookies={COOKIE: "b"})
    browser = SimpleNamespace(headers={}, cookies={COOKIE: "b"})
    assert authorization(cast(Request, both)) == "Bearer a"
    assert authorization(cast(Request, browser)) == "Bearer b"
