"""HTTP requests, as bytes, and what of the answers must be the same."""

from __future__ import annotations

import re
import ssl
from collections.abc import Mapping
from contextlib import suppress

import trio

from tests.interop.drop_in.transcript import Transcript

WAIT_S = 15.0
_HEADERS = ("content-type", "x-nsq-content-type", "allow", "location")
_CHUNK = 65_536


def request_bytes(method: str, target: str, body: bytes, headers: Mapping[str, str]) -> bytes:
    lines = {"Host": "nsqd", "Connection": "close", "Content-Length": str(len(body)), **headers}
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items() if value)
    return f"{method} {target} HTTP/1.1\r\n{head}\r\n".encode() + body


async def _open(address: str, context: ssl.SSLContext | None) -> trio.abc.Stream:
    host, _, port = address.rpartition(":")
    if context is None:
        return await trio.open_tcp_stream(host, int(port))
    return await trio.open_ssl_over_tcp_stream(host, int(port), ssl_context=context, https_compatible=True)


async def exchange(address: str, request: bytes, context: ssl.SSLContext | None = None) -> bytes:
    """Everything that comes back until the connection ends; as far as it came in time."""
    said = b""
    with trio.move_on_after(WAIT_S):
        async with await _open(address, context) as stream:
            with suppress(trio.BrokenResourceError):  # refused before it was sent: the answer is there
                await stream.send_all(request)
            with suppress(trio.BrokenResourceError):
                while part := await stream.receive_some(_CHUNK):
                    said += part
            return said
    return said + b" (and then nothing)"


async def expect(address: str, target: str, expectation: str) -> str:
    """What a client that waits with its body hears first, and in the end."""
    host, _, port = address.rpartition(":")
    request = request_bytes("POST", target, b"x", {"Expect": expectation})
    with trio.move_on_after(WAIT_S):
        async with await trio.open_tcp_stream(host, int(port)) as stream:
            await stream.send_all(request[:-1])
            said = bytes(await stream.receive_some(_CHUNK))
            with suppress(trio.BrokenResourceError):
                await stream.send_all(request[-1:])
                async for part in stream:
                    said += part
            return statuses(said)
    return "nothing"


def statuses(answers: bytes) -> str:
    """Of all answers on one connection."""
    return ", ".join(found.decode() for found in re.findall(rb"HTTP/1\.[01] (\d+ [A-Za-z ]+)", answers))


def note_answer(transcript: Transcript, label: str, answer: bytes) -> bytes:
    """Status and the headers that clients read, one label each, and the body: JSON by field. Gives the body."""
    head, _, rest = answer.partition(b"\r\n\r\n")
    status, *lines = head.decode("latin-1").split("\r\n")
    transcript.note(label, re.sub(r"^HTTP/1\.[01] ", "", status) or "closed")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    for name in _HEADERS:
        if name in headers:
            transcript.note(f"{label} {name}", headers[name])
    body = _whole(rest) if headers.get("transfer-encoding") == "chunked" else rest
    if headers.get("content-type", "").startswith("application/json") and body[:1] in b"{[" and body:
        transcript.note_json(f"{label} body", body)
    else:
        transcript.note(f"{label} body", body.decode("utf-8", "backslashreplace"))
    return body


def _whole(chunked: bytes) -> bytes:
    body = b""
    while chunked:
        size, _, rest = chunked.partition(b"\r\n")
        length = int(size or b"0", 16)
        body, chunked = body + rest[:length], rest[length + 2 :] if length else b""
    return body


def text_lines(text: str) -> list[str]:
    """Of ``/stats``, without its instants, ports and sizes of memory."""
    lines = []
    for line in text.splitlines():
        line = re.sub(r"^(start_time|uptime) .*", r"\1 ...", line)
        line = re.sub(r"^(nsqd v[0-9.]+).*", r"\1 ...", line)
        line = re.sub(r"^(   [a-z_0-9]+ *\t)\d+$", r"\1N", line)
        line = re.sub(r"(\[V2 \S*):\d+", r"\1:PORT", line)
        lines.append(re.sub(r"connected: \S+", "connected: ...", line))
    return lines
