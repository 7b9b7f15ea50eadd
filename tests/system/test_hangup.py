"""SIGHUP to real services: new tokens and certificates count, removed ones do not, and a bad file changes nothing."""

from __future__ import annotations

import signal
import ssl
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from shutil import copy

import httpx
import pytest

from tests.support.ports import pick_addresses

pytestmark = [pytest.mark.slow, pytest.mark.timeout(60)]

CERTIFICATES = Path(__file__).resolve().parents[1] / "certificates"


def statuses(url: str) -> list[int]:
    return [
        httpx.get(url, headers={"Authorization": f"Bearer {token}"}, trust_env=False).status_code
        for token in ("old", "new")
    ]


@pytest.mark.parametrize(("flag", "line"), [("--tokens", "operator ann {}\n"), ("--token-file", "{}\n")])
@pytest.mark.parametrize(
    ("service", "path", "started"),
    [
        (["distributor", "--store", "sqlite:///store.sqlite3"], "/v1/brokers", "ready"),
        (["broker", "--name", "b1", "--tcp-address", ""], "/stats", "listening"),
        (["limit", "serve"], "/limit/v1/contracts", "ready"),
    ],
    ids=lambda each: each[0] if isinstance(each, list) else None,
)
def test_tokens_are_read_again_at_sighup(
    tmp_path: Path, service: Sequence[str], path: str, started: str, flag: str, line: str
) -> None:
    address, other = pick_addresses(2)
    tokens = tmp_path / "tokens"
    tokens.write_text(line.format("old"))
    words = [other if word == "" else word for word in service]
    command = [sys.executable, "-m", "srtm", *words, "--http-address", address, flag, str(tokens)]
    with running(command, tmp_path) as process:
        said_until(process, started)
        assert statuses(f"http://{address}{path}") == [200, 401]
        tokens.write_text(line.format("new"))
        process.send_signal(signal.SIGHUP)
        said_until(process, "read again and in force")
        assert statuses(f"http://{address}{path}") == [401, 200]
        tokens.write_text("not sense\n")
        process.send_signal(signal.SIGHUP)
        said_until(process, "the old one stays in force")
        assert statuses(f"http://{address}{path}") == [401, 200]
        tokens.unlink()
        process.send_signal(signal.SIGHUP)
        said_until(process, "must be a file that can be read")
        assert statuses(f"http://{address}{path}") == [401, 200]


def test_publishes_by_http_show_the_renewed_token_after_sighup(tmp_path: Path) -> None:
    address, web = pick_addresses(2)
    token = tmp_path / "token"
    token.write_text("old\n")
    words = ["broker", "--name", "b1", "--tcp-address", address, "--http-address", web, "--token-file", str(token)]

    def published(shown: str) -> int:
        headers = {"Authorization": f"Bearer {shown}"}
        return httpx.post(f"http://{web}/pub?topic=t", content=b"x", headers=headers, trust_env=False).status_code

    with running([sys.executable, "-m", "srtm", *words], tmp_path) as process:
        said_until(process, "listening")
        assert [published(shown) for shown in ("old", "new")] == [200, 401]
        token.write_text("new\n")
        process.send_signal(signal.SIGHUP)
        said_until(process, "renewed=token")
        assert [published(shown) for shown in ("old", "new")] == [401, 200]


def test_who_asks_a_distributor_shows_it_the_renewed_token_after_sighup(tmp_path: Path) -> None:
    address, tcp, web = pick_addresses(3)
    tokens, token = tmp_path / "tokens", tmp_path / "token"
    tokens.write_text("operator ann new\n")
    served = ["distributor", "--http-address", address, "--store", "sqlite:///store.sqlite3", "--tokens", str(tokens)]
    broker = ["broker", "--name", "b1", "--tcp-address", tcp, "--http-address", web]
    with running([sys.executable, "-m", "srtm", *served], tmp_path) as distributor:
        said_until(distributor, "ready")
        for words, refused, taken in (
            (["adaptor"], "no histories", "histories again"),
            (broker, "no sync", "in sync again"),
        ):
            token.write_text("old\n")
            shown = ["--distributor", f"http://{address}", "--token-file", str(token)]
            with running([sys.executable, "-m", "srtm", *words, *shown], tmp_path) as process:
                said_until(process, refused)
                token.write_text("new\n")
                process.send_signal(signal.SIGHUP)
                said_until(process, taken)


def test_a_broker_shows_a_renewed_certificate_after_sighup(tmp_path: Path) -> None:
    address, https = pick_addresses(2)
    host, port = https.split(":")
    certificate, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    copy(CERTIFICATES / "server.pem", certificate)
    copy(CERTIFICATES / "server.key", key)
    words = ["broker", "--name", "b1", "--tcp-address", address, "--http-address", "", "--https-address", https]
    command = [sys.executable, "-m", "srtm", *words, "--tls-cert", str(certificate), "--tls-key", str(key)]
    with running(command, tmp_path) as process:
        said_until(process, "listening")
        old = ssl.get_server_certificate((host, int(port)), timeout=5)
        copy(CERTIFICATES / "distributor.pem", certificate)
        process.send_signal(signal.SIGHUP)
        said_until(process, "the old one stays in force")  # the key is not there yet
        assert ssl.get_server_certificate((host, int(port)), timeout=5) == old
        copy(CERTIFICATES / "distributor.key", key)
        process.send_signal(signal.SIGHUP)
        said_until(process, "read again and in force")
        new = ssl.get_server_certificate((host, int(port)), timeout=5)
        assert new.strip() == (CERTIFICATES / "distributor.pem").read_text().strip()


def test_rows_of_who_may_do_what_are_read_again_at_sighup(tmp_path: Path) -> None:
    address, web = pick_addresses(2)
    rows, tokens = tmp_path / "rows", tmp_path / "tokens"
    rows.write_text("cars write roads-*\ncars deny roads-secret\n")
    tokens.write_text("client cars c\n")
    words = ["broker", "--name", "b1", "--tcp-address", address, "--http-address", web, "--tokens", str(tokens)]
    command = [sys.executable, "-m", "srtm", *words, "--topic-acl-file", str(rows)]

    def published(topic: str) -> int:
        headers = {"Authorization": "Bearer c"}
        return httpx.post(f"http://{web}/pub?topic={topic}", content=b"x", headers=headers, trust_env=False).status_code

    with running(command, tmp_path) as process:
        said_until(process, "listening")
        assert [published(topic) for topic in ("roads-7", "roads-secret", "lanes")] == [200, 403, 403]
        rows.write_text("cars write lanes\n")
        process.send_signal(signal.SIGHUP)
        said_until(process, "renewed=topic_acl_file")
        assert [published(topic) for topic in ("roads-7", "lanes")] == [403, 200]


@contextmanager
def running(command: Sequence[str], directory: Path) -> Iterator[subprocess.Popen[str]]:
    """A service that ends well at SIGTERM."""
    with subprocess.Popen(command, cwd=directory, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
            process.terminate()
            assert process.wait(20) == 0
        finally:
            process.kill()


def said_until(process: subprocess.Popen[str], words: str) -> None:
    assert process.stderr is not None
    for line in process.stderr:
        if words in line:
            return
    pytest.fail(f"{words!r} was not said")
