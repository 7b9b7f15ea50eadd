"""SIGHUP to real services: new tokens and certificates count, removed ones do not, and a bad file changes nothing."""

from __future__ import annotations

import signal
import ssl
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from shutil import copy

import httpx
import pytest

from srtm.cluster.cluster_file import pick_addresses

pytestmark = [pytest.mark.slow, pytest.mark.timeout(60)]

CERTIFICATES = Path(__file__).resolve().parents[1] / "certificates"


def statuses(url: str) -> list[int]:
    return [
        httpx.get(url, headers={"Authorization": f"Bearer {token}"}, trust_env=False).status_code
        for token in ("old", "new")
    ]


@pytest.mark.parametrize(
    ("service", "path", "started"),
    [
        (["distributor", "--store", "sqlite:///store.sqlite3"], "/v1/brokers", "ready"),
        (["broker", "--name", "b1", "--tcp-address", ""], "/stats", "listening"),
        (["limit", "serve"], "/limit/v1/contracts", "ready"),
    ],
    ids=lambda each: each[0] if isinstance(each, list) else None,
)
def test_tokens_are_read_again_at_sighup(tmp_path: Path, service: Sequence[str], path: str, started: str) -> None:
    address, other = pick_addresses(2, {})
    tokens = tmp_path / "tokens"
    tokens.write_text("operator ann old\n")
    words = [other if word == "" else word for word in service]
    command = [sys.executable, "-m", "srtm", *words, "--http-address", address, "--tokens", str(tokens)]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            said_until(process, started)
            assert statuses(f"http://{address}{path}") == [200, 401]
            tokens.write_text("operator ann new\n")
            process.send_signal(signal.SIGHUP)
            said_until(process, "read again and in force")
            assert statuses(f"http://{address}{path}") == [401, 200]
            tokens.write_text("nonsense\n")
            process.send_signal(signal.SIGHUP)
            said_until(process, "the old one stays in force")
            assert statuses(f"http://{address}{path}") == [401, 200]
            process.terminate()
            assert process.wait(20) == 0
        finally:
            process.kill()


def test_a_broker_shows_a_renewed_certificate_after_sighup(tmp_path: Path) -> None:
    address, https = pick_addresses(2, {})
    host, port = https.split(":")
    certificate, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    copy(CERTIFICATES / "server.pem", certificate)
    copy(CERTIFICATES / "server.key", key)
    words = ["broker", "--name", "b1", "--tcp-address", address, "--http-address", "", "--https-address", https]
    command = [sys.executable, "-m", "srtm", *words, "--tls-cert", str(certificate), "--tls-key", str(key)]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as process:
        try:
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
            process.terminate()
            assert process.wait(20) == 0
        finally:
            process.kill()


def test_rows_of_who_may_do_what_are_read_again_at_sighup(tmp_path: Path) -> None:
    address, web = pick_addresses(2, {})
    rows, tokens = tmp_path / "rows", tmp_path / "tokens"
    rows.write_text("cars write roads-*\ncars deny roads-secret\n")
    tokens.write_text("client cars c\n")
    words = ["broker", "--name", "b1", "--tcp-address", address, "--http-address", web, "--tokens", str(tokens)]
    command = [sys.executable, "-m", "srtm", *words, "--topic-acl-file", str(rows)]

    def published(topic: str) -> int:
        headers = {"Authorization": "Bearer c"}
        return httpx.post(f"http://{web}/pub?topic={topic}", content=b"x", headers=headers, trust_env=False).status_code

    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as process:
        try:
            said_until(process, "listening")
            assert [published(topic) for topic in ("roads-7", "roads-secret", "lanes")] == [200, 403, 403]
            rows.write_text("cars write lanes\n")
            process.send_signal(signal.SIGHUP)
            said_until(process, "renewed='topic access'")
            assert [published(topic) for topic in ("roads-7", "lanes")] == [403, 200]
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
