"""The engine's start and end: settings, ports, and the saving of queued messages."""

from __future__ import annotations

import errno
import zlib
from typing import TYPE_CHECKING

import msgspec

from broker import events
from broker.config import TOPOLOGY_AWARE, BrokerConfig, EngineConfig
from broker.runtime import tls_files as tls
from broker.runtime.addresses import Ports
from broker.sync.state_file import SyncState
from srtm.errors import BadInput, Conflict, InternalError, NotBuilt, SrtmError
from srtm.log import Log
from srtm.net.address import listen_address
from srtm.net.tokens import shown

if TYPE_CHECKING:
    from srtm._native import Engine

_DISK_PATIENCE_MS = 60_000  # without progress; a gigabyte takes longer on a slow disk, but no single step does


def engine_settings(config: BrokerConfig, state: SyncState) -> EngineConfig:
    """The engine's settings. It refuses publishes until ``broker.service`` or the first sync lets them in."""
    return msgspec.structs.replace(
        config.engine,
        tcp_address=listen_address("tcp_address", config.tcp_address),
        http_address=_optional_address("http_address", config.http_address),
        https_address=_optional_address("https_address", config.https_address if config.tls_cert else ""),
        mqtt_address=_optional_address("mqtt_address", config.mqtt_address),
        mqtts_address=_optional_address("mqtts_address", config.mqtts_address),
        mqtt_ws_address=_optional_address("mqtt_ws_address", config.mqtt_ws_address),
        mqtt_wss_address=_optional_address("mqtt_wss_address", config.mqtt_wss_address),
        anonymous=config.mqtt_allow_anonymous or not config.asks_clients,
        http_idle_timeout_ms=config.http_idle_timeout_ms,
        http_token="" if config.token is None else shown(config.token),
        node_id=zlib.crc32(config.name.encode()) % 1024 if config.node_id is None else config.node_id,
        max_memory_bytes=config.max_memory_bytes,
        data_path=config.data_path,
        trace_entries=config.trace_entries,
        hold_new_topics=config.needs_discovery,
        topology_aware=TOPOLOGY_AWARE in config.experiments,
        auth_servers=bool(config.auth_http_addresses),
        auth_by_http=config.auth_by_http,
        accepting=False,
        not_accepting_reason=_refusal(config, state),
    )


def make_engine(settings: EngineConfig, config: BrokerConfig) -> Engine:
    """Raises BadInput, NotBuilt."""
    try:
        from srtm._native import Engine
    except ModuleNotFoundError:
        raise NotBuilt from None
    try:
        return Engine(msgspec.json.encode(settings))
    except ValueError as error:
        raise tls.refusal(error, settings, config) from None


def start_engine(engine: Engine, settings: EngineConfig) -> Ports:
    """Raises BadInput, Conflict."""
    try:
        ports = engine.start()
    except ValueError as error:
        field, _, rule = str(error).partition(": ")
        raise BadInput(field, getattr(settings, field), rule) from None
    except OSError as error:
        field = error.filename or "tcp_address"
        if field == "data_path":
            raise BadInput(field, settings.data_path, f"must take queues ({error.strerror})") from None
        raise _bind_error(field, getattr(settings, field), error) from None
    return Ports(*(-1 if port is None else port for port in ports))


def stop_engine(engine: Engine, log: Log, _kind: object, error: BaseException | None, _traceback: object) -> None:
    """Stop the engine, which saves queued messages, whatever ends the broker.

    Raises InternalError if it could not save all of them, unless ``error`` already says why the broker ends.
    """
    saved = engine.stop(_DISK_PATIENCE_MS)
    failures = [event.reason for event in events.drain(engine) if isinstance(event, events.DiskFailed)]
    if saved:
        return
    stalled = f"nothing was written or synced for {_DISK_PATIENCE_MS // 1000} s"
    # One reason may contain another: each is named once.
    said = [text for text in dict.fromkeys(failures) if not any(text != other and text in other for other in failures)]
    reason = "; ".join(said) or stalled
    log.failure("queued messages were not all saved", reason=reason)
    group = error if isinstance(error, BaseExceptionGroup) else BaseExceptionGroup("", [error] if error else [])
    if error is None or group.subgroup(SrtmError) is None:
        raise InternalError(f"queued messages were not all saved: {reason}")


def _optional_address(field: str, address: str) -> str:
    return address and listen_address(field, address)


def _refusal(config: BrokerConfig, state: SyncState) -> str:
    if not config.distributors:
        return f"broker {config.name} is starting"
    if state.has_synced:
        return f"broker {config.name} has not synced with the distributor since its start: the topic may be limited"
    return f"broker {config.name} has not synced with the distributor yet"


def _bind_error(field: str, address: str, error: OSError) -> SrtmError:
    if error.errno == errno.EADDRINUSE:
        return Conflict(field, address, "the port is in use by another process")
    if error.errno == errno.EACCES:
        return Conflict(field, address, "this user may not listen on that port")
    return BadInput(field, address, f"must be an address of this host ({error.strerror or error})")
