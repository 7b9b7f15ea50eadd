"""The command line: every flag there is, what its values may be, what is refused and with which status."""

from __future__ import annotations

import re
from collections.abc import Sequence

import trio

from tests.interop.drop_in.node import CERTIFICATES, ended
from tests.interop.drop_in.session import Play, Sessions

SESSIONS = Sessions()
_GIVEN = (
    "-node-id=7", "--log-level=WARN", "--log-prefix=[x] ", "--max-rdy-count=11", "-msg-timeout=3s",
    "--max-msg-timeout=1h2m3s", "--max-msg-size=2000", "--max-body-size=9000", "--max-req-timeout=90m",
    "--max-heartbeat-interval=70s", "--max-output-buffer-size=100000", "--max-output-buffer-timeout=31s",
    "--min-output-buffer-timeout=26ms", "--output-buffer-timeout=1.5s", "--max-channel-consumers=3",
    "--mem-queue-size=77", "--max-bytes-per-file=1000000", "--sync-every=10", "--sync-timeout=1s500ms",
    "--queue-scan-worker-pool-max=5", "--queue-scan-selection-count=6", "--statsd-address=127.0.0.1:1",
    "--statsd-prefix=p.%s", "--statsd-interval=30s", "--statsd-mem-stats=0", "--statsd-udp-packet-size=400",
    "--statsd-exclude-ephemeral", "--e2e-processing-latency-percentile=0.5,0.99",
    "--e2e-processing-latency-percentile=1.0", "--e2e-processing-latency-window-time=5m", "--deflate=f",
    "--max-deflate-level=3", "--snappy=FALSE", "--tls-required=0", "--tls-min-version=tls1.2",
    "--broadcast-tcp-port=5", "--broadcast-http-port=6", "--http-client-connect-timeout=1s",
    "--http-client-request-timeout=3s", "--verbose", "--worker-id",
)  # fmt: skip
KEYS = (
    "id", "log_level", "log_prefix", "broadcast_address", "broadcast_tcp_port", "broadcast_http_port",
    "nsqlookupd_tcp_addresses", "auth_http_addresses", "http_client_connect_timeout", "http_client_request_timeout",
    "mem_queue_size", "max_bytes_per_file", "sync_every", "sync_timeout", "queue_scan_worker_pool_max",
    "queue_scan_selection_count", "queue_scan_interval", "queue_scan_refresh_interval", "queue_scan_dirty_percent",
    "msg_timeout", "max_msg_timeout", "max_msg_size", "max_body_size", "max_req_timeout", "client_timeout",
    "max_heartbeat_interval", "max_rdy_count", "max_output_buffer_size", "max_output_buffer_timeout",
    "min_output_buffer_timeout", "output_buffer_timeout", "max_channel_consumers", "statsd_address", "statsd_prefix",
    "statsd_interval", "statsd_mem_stats", "statsd_udp_packet_size", "statsd_exclude_ephemeral",
    "e2e_processing_latency_percentiles", "e2e_processing_latency_window_time", "tls_cert", "tls_key",
    "tls_root_ca_file", "tls_client_auth_policy", "tls_required", "tls_min_version", "deflate", "max_deflate_level",
    "snappy",
)  # fmt: skip
_SERVER = (f"--tls-cert={CERTIFICATES / 'server.pem'}", f"--tls-key={CERTIFICATES / 'server.key'}")
_TLS = (
    *_SERVER,
    f"--tls-root-ca-file={CERTIFICATES / 'authority.pem'}",
    "--tls-required=tcp-https",
    "--tls-min-version=tls1.1",
)
_STARTS = (
    "--frobnicate", "--frobnicate=1", "-", "---verbose", "--=x", "--verbose=maybe", "--verbose false", "stray",
    "stray --frob", "-- --frob", "--msg-timeout", "--msg-timeout=", "--msg-timeout=5", "--msg-timeout=0",
    "--msg-timeout=never", "--msg-timeout=-5s", "--msg-timeout=1.5h", "--msg-timeout=5S", "--max-rdy-count=x",
    "--max-rdy-count=", "--max-rdy-count=1.5", "--max-rdy-count=0x10", "--max-rdy-count=1_0", "--max-rdy-count=-1",
    "--max-rdy-count=010", "--max-rdy-count=99999999999999999999", "--mem-queue-size=-1", "--max-msg-size=0",
    "--max-msg-size=-1", "--max-body-size=0", "--node-id=-1", "--node-id=1023", "--node-id=1024", "--node-id=x",
    "--log-level=loud", "--log-level=", "--log-level=Debug", "--log-level=3", "--deflate=yes", "--deflate=TRUE",
    "--deflate=T", "--snappy=2", "--max-deflate-level=0", "--max-deflate-level=10", "--max-deflate-level=9",
    "--tls-min-version=ssl3.0", "--tls-min-version=TLS1.2", "--tls-min-version=1.2", "--tls-min-version=",
    "--tls-required", "--tls-required=maybe", "--tls-required=TCP-HTTPS", "--tls-client-auth-policy=require",
    "--tls-client-auth-policy=frob", "--tls-cert=/no/such", "--tls-key=/no/such", "--tls-root-ca-file=/no/such",
    "--e2e-processing-latency-percentile=0", "--e2e-processing-latency-percentile=2",
    "--e2e-processing-latency-percentile=x", "--e2e-processing-latency-percentile=0.5,",
    "--e2e-processing-latency-percentile=", "--data-path=/no/such", "--tcp-address=nonsense:port:more",
    "--tcp-address=127.0.0.1:x", "--tcp-address=127.0.0.1:99999", "--http-address=300.0.0.1:1",
    "--broadcast-tcp-port=x", "--broadcast-tcp-port=-1", "--broadcast-tcp-port=70000", "--statsd-prefix=",
    "--statsd-prefix=%d", "--statsd-interval=0", "--statsd-udp-packet-size=-1", "--sync-every=0", "--sync-timeout=0",
    "--max-bytes-per-file=0", "--queue-scan-worker-pool-max=0", "--queue-scan-selection-count=0",
    "--max-req-timeout=0", "--max-req-timeout=2000h", "--max-heartbeat-interval=0", "--output-buffer-timeout=0",
    "--max-channel-consumers=-1", "--http-client-request-timeout=0", "--config=/no/such", "--config", "--version",
    "-version", "--version=false", "--help", "-h", "--help --frob", "--version --frob", "--broadcast-address=",
    "--lookupd-tcp-address=", "--lookupd-tcp-address=nonsense", "--auth-http-address=nonsense",
    "--statsd-address=nonsense",
)  # fmt: skip
_TLS_STARTS = (
    "--tls-required", "--tls-client-auth-policy=require", "--tls-client-auth-policy=frob",
    "--tls-client-auth-policy=require-verify", "--tls-client-auth-policy=",
    "--tls-required=false --tls-client-auth-policy=require",
)  # fmt: skip


@SESSIONS.add("flags: defaults")
async def defaults(play: Play) -> None:
    await shown(play)


@SESSIONS.add("flags: others than the defaults", *_GIVEN, alone=True)
async def given(play: Play) -> None:
    await shown(play)
    await play.http("info", "GET", "/info")


@SESSIONS.add("flags: TLS", *_TLS)
async def given_tls(play: Play) -> None:
    await shown(play)


async def shown(play: Play) -> None:
    for key in KEYS:
        await play.config(key)


@SESSIONS.add("flags: starts")
async def starts(play: Play) -> None:
    for number, words in enumerate(_STARTS):
        await start(play, words, words.split(" ") if words else [], number)


@SESSIONS.add("flags: starts with a certificate")
async def tls_starts(play: Play) -> None:
    for number, words in enumerate(_TLS_STARTS):
        await start(play, words, [*_SERVER, *words.split(" ")], 1000 + number)


@SESSIONS.add("flags: help")
async def help_names_all(play: Play) -> None:
    said = await trio.to_thread.run_sync(ended, play.node.system, ["--help"], play.node.folder / "help")
    names = sorted(set(re.findall(r"^ *--?([a-z0-9-]+)", "".join(said[1:]) if said else "", re.MULTILINE)))
    for name in names:
        play.transcript.note(f"flag {name}", "is there")


async def start(play: Play, label: str, words: Sequence[str], number: int) -> None:
    """Whether it serves, or its exit status and whether it said anything where."""
    play.transcript.exchanges += 1
    said = await trio.to_thread.run_sync(ended, play.node.system, words, play.node.folder / f"start-{number}")
    if said is None:
        play.transcript.note(label, "serves")
        return
    status, out, err = said
    play.transcript.note(label, f"status {status}")
    play.transcript.note(f"{label} output", out.partition("(")[0].strip() if "version" in label else "")
    play.transcript.note(f"{label} complaint", "said" if err and status else "")
