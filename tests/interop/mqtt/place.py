"""The broker that is judged, on free ports of loopback, with a certificate that a fresh authority signed."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.harness.machine.checkout import ROOT
from tests.interop.processes import running
from tests.interop.suites import run_or_fail
from tests.support.ports import pick_addresses

DENIED = "test/nosubscribe"  # by Paho's suites
_KEY = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]


def make_certificate(directory: Path) -> None:
    """``ca.pem`` signs ``broker.pem``, of 127.0.0.1, whose key is ``broker.key``."""
    # Some clients take no authority for a server's certificate: there must be two.
    authority = ["-subj", "/CN=interop", "-keyout", "ca.key", "-out", "ca.pem"]
    server = [
        "-subj",
        "/CN=127.0.0.1",
        "-addext",
        "subjectAltName=IP:127.0.0.1",
        "-addext",
        "basicConstraints=CA:FALSE",
    ]
    run_or_fail(["openssl", "req", "-x509", *_KEY, *authority], directory)
    signed = ["-CA", "ca.pem", "-CAkey", "ca.key", "-keyout", "broker.key", "-out", "broker.pem"]
    run_or_fail(["openssl", "req", "-x509", *_KEY, *server, *signed], directory)


@contextmanager
def judged_broker(directory: Path) -> Iterator[dict[str, str]]:
    """Yields the variables by which the judges find it. Raises CannotFetch without openssl, NotReady."""
    make_certificate(directory)
    access = directory / "access"
    access.write_text(f"topic readwrite #\ntopic readwrite $SYS/#\ntopic deny {DENIED}\n")
    tcp, http, mqtt, mqtts, ws = pick_addresses(5)
    command = [sys.executable, "-m", "broker", "--name", "judged", "--data-path", str(directory / "data")]
    command += ["--tcp-address", tcp, "--http-address", http, "--mqtt-address", mqtt, "--mqtts-address", mqtts]
    command += ["--mqtt-ws-address", ws, "--mqtt-acl-file", str(access), "--mqtt-max-keep-alive", "60"]
    command += ["--tls-cert", str(directory / "broker.pem"), "--tls-key", str(directory / "broker.key")]
    (directory / "data").mkdir()
    with running(*command, ping=f"http://{http}/ping", directory=ROOT):
        ports = {"MQTT_PORT": mqtt, "MQTTS_PORT": mqtts, "MQTT_WS_PORT": ws}
        yield {name: address.rpartition(":")[2] for name, address in ports.items()} | {
            "MQTT_CA": str(directory / "ca.pem"),
            "MQTT_DENIED": DENIED,
        }
