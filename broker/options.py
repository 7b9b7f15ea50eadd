"""The flags of ``srtm broker``, its part of a service file, and what both say. Uses argparse: typer takes 0.2 s to
import."""

from __future__ import annotations

import argparse
import math
import os
import re
from collections.abc import Sequence
from typing import NoReturn

import msgspec

from broker.access_files import AccessFiles
from broker.config import ARRIVAL_CLOCKS, LIMITS, TLS_REQUIRED, TLS_VERSIONS, BrokerConfig, EngineConfig
from broker.flag_help import FlagHelp
from broker.mqtt_options import add_mqtt, mqtt_settings
from srtm.errors import BadInput
from srtm.log import FORMATS, LEVELS
from srtm.net.tls_trust import ca_file
from srtm.net.tokens import OwnToken, Tokens, token_of_file
from srtm.settings.service_file import FILE_VARIABLE, Setting, Settings, by_key, with_file
from srtm.text import read_duration_ns

_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


def parse_arguments(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse the flags, and the settings of file and environment that they leave open. Raises BadInput (the file).

    A bad flag ends the process with status 2.
    """
    return _parser().parse_args(with_file("broker", settings(), arguments, os.environ))


def settings() -> Settings:
    """Return what a service file can say of a broker."""
    kinds = {argparse._StoreTrueAction: "switch", argparse._AppendAction: "list"}
    return by_key(
        Setting.of_flags(action.option_strings, kinds.get(type(action), "value"), str(action.metavar))  # type: ignore[arg-type]
        for action in _parser()._actions
    )


def check_arguments(arguments: Sequence[str]) -> BrokerConfig:
    """Return the settings that ``arguments`` stand for. Raises BadInput, also for a bad flag."""
    parser = _parser()

    def refuse(message: str) -> NoReturn:
        raise BadInput("?", None, message)

    parser.error = refuse  # type: ignore[method-assign]
    config = parse_config(parser.parse_args(arguments))
    AccessFiles(config)
    return config


def parse_config(given: argparse.Namespace) -> BrokerConfig:
    """Raises BadInput."""
    from_environment = os.environ.get("SRTM_DISTRIBUTOR", "")
    distributors = given.distributor or [url.strip() for url in from_environment.split(",") if url.strip()]
    limits = {name: parse_size(name, getattr(given, name)) for name in LIMITS}
    engine = EngineConfig(
        arrival_clock=given.arrival_clock,
        lab_service_time_ns=round(_number("lab_service_time", given.lab_service_time) * 1000),
        realtime=given.realtime,
        tls_client_auth_policy=given.tls_client_auth_policy,
        tls_required=given.tls_required or ("true" if given.tls_client_auth_policy else "false"),
        tls_min_version=given.tls_min_version,
        mem_queue_size=parse_size("mem_queue_size", given.mem_queue_size),
        max_bytes_per_file=parse_size("max_bytes_per_file", given.max_bytes_per_file),
        sync_every=parse_size("sync_every", given.sync_every),
        sync_timeout_ms=EngineConfig().sync_timeout_ms
        if given.sync_timeout is None
        else parse_duration_ms("sync_timeout", given.sync_timeout),
    )
    return BrokerConfig(
        name=given.name,
        tcp_address=given.tcp_address,
        http_address=given.http_address,
        https_address=given.https_address,
        mqtt_address=given.mqtt_address,
        mqtts_address=given.mqtts_address,
        mqtt_ws_address=given.mqtt_ws_address,
        mqtt_wss_address=given.mqtt_wss_address,
        mqtt_redirect=given.mqtt_redirect,
        mqtt_allow_anonymous=given.mqtt_allow_anonymous,
        mqtt_password_file=given.mqtt_password_file or "",
        mqtt_acl_file=given.mqtt_acl_file or "",
        http_idle_timeout_ms=round(_number("http_idle_timeout", given.http_idle_timeout) * 1000),
        data_path=given.data_path,
        mcap=_number("mcap", given.mcap),
        distributors=tuple(distributors),
        accept_unknown=given.accept_unknown,
        lookupd_tcp_addresses=tuple(given.lookupd_tcp_address),
        auth_http_addresses=tuple(given.auth_http_address),
        auth_http_request_method=given.auth_http_request_method,
        auth_by_http=True,
        topic_acl_file=given.topic_acl_file,
        tls_cert=given.tls_cert,
        tls_key=given.tls_key,
        tls_root_ca_file=given.tls_root_ca_file,
        broadcast_address=given.broadcast_address,
        max_memory_bytes=parse_size("max_memory", given.max_memory),
        trace_entries=parse_size("trace_entries", given.trace_entries),
        log_level=given.log_level,
        log_format=given.log_format,
        metrics_topics=parse_size("metrics_topics", given.metrics_topics),
        metrics_contracts=parse_size("metrics_contracts", given.metrics_contracts),
        token=_token(given),
        tokens=Tokens.read("tokens", given.tokens) if given.tokens else None,
        ca_file=ca_file(given.ca_file),
        engine=msgspec.structs.replace(engine, **limits, **mqtt_settings(given)),
    )


def _token(given: argparse.Namespace) -> OwnToken | None:
    if given.token_file is not None and given.token is not None:
        raise BadInput("token_file", given.token_file, "must not be given together with --token")
    if given.token_file is not None:
        return token_of_file("token_file", given.token_file)
    return given.token or os.environ.get("SRTM_TOKEN") or None


def _number(field: str, text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        raise BadInput(field, text, "must be a number") from None
    if not math.isfinite(number):
        raise BadInput(field, text, "must be a finite number")
    return number


def parse_size(field: str, text: str) -> int:
    """``1073741824``, ``64k``, ``512m``, ``1G``, ``1GiB``: powers of 1024. Raises BadInput."""
    match = re.fullmatch(r"([0-9]{1,15})([kmg]?)(?:i?b)?", text.lower(), re.ASCII)
    if match is None:
        raise BadInput(field, text, "must be a whole number, optionally with k, m or g (1024, 1024^2, 1024^3)")
    return int(match[1]) * _UNITS[match[2]]


def parse_duration_ms(field: str, text: str) -> int:
    """``2s``, ``250ms``, ``1m``: as nsqd writes them; parts of a millisecond count as one. Raises BadInput."""
    try:
        return -(-read_duration_ns(text) // 10**6)
    except ValueError as error:
        raise BadInput(field, text, str(error)) from None


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "srtm broker",
        description="Run a broker: alone it is a small nsqd.",
        allow_abbrev=False,
        formatter_class=FlagHelp,
        add_help=False,
    )
    parser.add_argument(
        "--config",
        metavar="FILE",
        help=f"settings (TOML) that count where neither flag nor environment does; default: ${FILE_VARIABLE}",
    )
    parser.add_argument("--name", required=True, help="unique in the cluster")
    parser.add_argument(
        "--tcp-address", default="127.0.0.1:4150", metavar="ADDRESS", help="HOST:PORT or /PATH (default: %(default)s)"
    )
    parser.add_argument(
        "--http-address",
        default="127.0.0.1:4151",
        metavar="ADDRESS",
        help='HOST:PORT, /PATH, or "" for none (default: %(default)s)',
    )
    parser.add_argument(
        "--https-address", default="", metavar="ADDRESS", help="HOST:PORT or /PATH, needs a certificate (default: none)"
    )
    parser.add_argument(
        "--http-idle-timeout", default="0", metavar="S", help="until an idle HTTP connection is closed; 0: never"
    )
    parser.add_argument(
        "--data-path", default=".", metavar="DIR", help="an existing directory (default: the current one)"
    )
    parser.add_argument(
        "--mcap", default="0", metavar="RATE", help="largest rate that keeps the SLO, msg/s; 0: not stated"
    )
    parser.add_argument(
        "--distributor", action="append", metavar="URL", help="may be repeated; default: $SRTM_DISTRIBUTOR, else none"
    )
    parser.add_argument(
        "--accept-unknown",
        action="store_true",
        help="started again, take messages for topics that were not limited before the first sync: a topic that was "
        "limited meanwhile then exceeds its limit",
    )
    parser.add_argument(
        "--lookupd-tcp-address", action="append", default=[], metavar="HOST:PORT", help="a nsqlookupd; may be repeated"
    )
    parser.add_argument(
        "--auth-http-address", action="append", default=[], metavar="ADDRESS",
        help="an auth server, HOST:PORT or a URL; clients must AUTH then (MQTT, HTTP: a password); may be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--auth-http-request-method", default="get", metavar="get|post", help="how it is asked (default: %(default)s)"
    )
    parser.add_argument(
        "--topic-acl-file",
        default="",
        metavar="FILE",
        help="who may do what by NSQ, HTTP and MQTT (IDENTITY ACTION PATTERN a line); needs --tokens or "
        "--mqtt-password-file",
    )
    _add_tls(parser)
    add_mqtt(parser)
    parser.add_argument("--broadcast-address", metavar="HOST", help="what others are told to connect to")
    parser.add_argument(
        "--max-memory", default="1g", metavar="BYTES", help="bound of queued messages, e.g. 512m (default: %(default)s)"
    )
    _add_limits(parser)
    parser.add_argument(
        "--mem-queue-size",
        default="10000",
        metavar="N",
        help="messages in memory, of every topic and every channel; the others go to disk (default: %(default)s)",
    )
    parser.add_argument(
        "--max-bytes-per-file", default="100m", metavar="BYTES", help="size of a queue's files (default: %(default)s)"
    )
    parser.add_argument(
        "--sync-every",
        default="2500",
        metavar="N",
        help="messages of a queue between two fsyncs (default: %(default)s)",
    )
    parser.add_argument("--sync-timeout", metavar="TIME", help="longest time between two fsyncs (default: 2s)")
    parser.add_argument(
        "--trace-entries", default="1000000", metavar="N", help="length of a topic's trace (default: %(default)s)"
    )
    for flag, words, what in (
        ("--log-level", LEVELS, "lowest level of log lines that are written"),
        ("--log-format", FORMATS, "log lines as text, or as JSON objects"),
    ):
        default = getattr(BrokerConfig, flag[2:].replace("-", "_"))
        parser.add_argument(flag, default=default, metavar="|".join(words), help=f"{what} (default: %(default)s)")
    parser.add_argument(
        "--metrics-topics",
        default="1000",
        metavar="N",
        help="topics with series of their own in /metrics, the busiest; as many channels (default: %(default)s)",
    )
    parser.add_argument(
        "--metrics-contracts",
        default="1000",
        metavar="N",
        help="contracts with series of their own in /metrics, those most asked (default: %(default)s)",
    )
    parser.add_argument(
        "--arrival-clock",
        default="kernel",
        metavar="|".join(ARRIVAL_CLOCKS),
        help="whose word counts for when a message arrived; packet: exact also where several messages of one "
        "connection lay unread, needs CAP_NET_RAW (default: %(default)s)",
    )
    parser.add_argument(
        "--lab-service-time",
        default="0",
        metavar="US",
        help="laboratory: let each message leave no earlier than one server with this service time, in microseconds, "
        "would (default: %(default)s, no such server)",
    )
    parser.add_argument(
        "--realtime",
        action="store_true",
        help="carry messages before all ordinary work of the machine (SCHED_FIFO), needs CAP_SYS_NICE",
    )
    _add_trust(parser)
    parser.add_argument("-h", "--help", action="help", help="show this message and exit")
    return parser


def _add_trust(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--token", help="bearer token of the cluster's HTTP; default: $SRTM_TOKEN (a flag shows in the process list)"
    )
    parser.add_argument("--token-file", metavar="FILE", help="a file with that token")
    parser.add_argument(
        "--tokens", metavar="FILE", help="tokens (SCOPE NAME TOKEN a line): operators' are taken by the HTTP here too"
    )
    parser.add_argument(
        "--ca-file",
        metavar="FILE",
        help="certificates (PEM) to trust of https:// distributors; default: $SRTM_CA_FILE, else the system's",
    )


def _add_limits(parser: argparse.ArgumentParser) -> None:
    """What one client may take from the others."""
    texts = {
        "max_connections": "connections; 0: as many as there are descriptors",
        "max_connections_per_address": "connections of one address; 0: seven eighths of all",
        "max_topics": "topics that clients may make; 0: no limit",
        "max_channels_per_topic": "channels that clients may make; 0: no limit",
        "max_mpub_messages": "messages of one MPUB; 0: what its bytes allow",
    }
    for name in LIMITS:
        default = str(getattr(EngineConfig(), name))
        flag, text = f"--{name.replace('_', '-')}", f"{texts[name]} (default: %(default)s)"
        parser.add_argument(flag, default=default, metavar="N", help=text)


def _add_tls(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--tls-cert", default="", metavar="FILE", help="certificate (PEM); with it, TLS is offered")
    parser.add_argument("--tls-key", default="", metavar="FILE", help="its key (PEM)")
    parser.add_argument(
        "--tls-root-ca-file", default="", metavar="FILE", help="certificates that clients' are checked against"
    )
    parser.add_argument(
        "--tls-client-auth-policy", default="", choices=("require", "require-verify"), help="certificates of clients"
    )
    parser.add_argument(
        "--tls-required", choices=TLS_REQUIRED, help="refuse clients without TLS (default: true under a policy)"
    )
    parser.add_argument(
        "--tls-min-version", default="tls1.2", choices=TLS_VERSIONS, help="below 1.2 means 1.2 (default: %(default)s)"
    )
