"""The TLS files: read at the start and when told to, and named if the engine cannot use them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from broker.config import EngineConfig
from srtm.errors import BadInput

if TYPE_CHECKING:
    from broker.config import BrokerConfig
    from srtm._native import Engine

_FILES = {"tls_cert_pem": "tls_cert", "tls_key_pem": "tls_key", "tls_root_ca_pem": "tls_root_ca_file"}


def with_files(settings: EngineConfig, config: BrokerConfig) -> EngineConfig:
    """The settings with the contents of the files. Raises BadInput."""
    return msgspec.structs.replace(
        settings, **{field: _read(option, getattr(config, option)) for field, option in _FILES.items()}
    )


def renew(engine: Engine, config: BrokerConfig) -> None:
    """Have new handshakes take the files as they are now. Raises BadInput: the old ones stay in force."""
    now = with_files(EngineConfig(), config)
    try:
        engine.renew_certificates(now.tls_cert_pem, now.tls_key_pem, now.tls_root_ca_pem)
    except ValueError as error:
        raise refusal(error, now, config) from None


def _read(option: str, name: str) -> str:
    if not name:
        return ""
    try:
        text = Path(name).read_text("ascii")
    except OSError as error:
        raise BadInput(option, name, f"must be a file that can be read ({error.strerror})") from None
    except UnicodeDecodeError:
        raise BadInput(option, name, "must be PEM, which is text") from None
    if not text.strip():
        raise BadInput(option, name, "must be PEM, and is empty")
    return text


def refusal(error: ValueError, settings: EngineConfig, config: BrokerConfig) -> BadInput:
    """The engine's refusal of its settings (``FIELD: RULE``), with the option and value as they were given."""
    field, _, rule = str(error).partition(": ")
    if field in _FILES:
        return BadInput(_FILES[field], getattr(config, _FILES[field]), rule)
    return BadInput(field, getattr(settings, field, ""), rule)


def oldest_version(settings: EngineConfig) -> str:
    """The oldest TLS version that is offered; none is below 1.2 (docs/dependencies.md)."""
    return max(settings.tls_min_version, "tls1.2").removeprefix("tls")
