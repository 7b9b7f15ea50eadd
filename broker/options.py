"""The flags of ``srtm broker``, its part of a service file, and what both say. Uses argparse: typer takes 0.2 s to
import."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Sequence
from typing import Any, NoReturn

from broker.access_files import AccessFiles
from broker.config import BrokerConfig, EngineConfig
from broker.flag_help import FlagHelp
from broker.option_rows import ROWS
from srtm.errors import BadInput
from srtm.net.tls_trust import ca_file
from srtm.net.tokens import OwnToken, Tokens, token_of_file
from srtm.settings.service_file import Setting, Settings, by_key, with_file

# Who asks for no password must not be open to each page that a browser on this machine shows.
_OWN_PAGES = ("localhost", "127.0.0.1", "[::1]")
_ORIGIN = re.compile(r"(https?://)?([\w.-]+|\[[0-9a-fA-F:.]+\])(:\d{1,5})?")


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
    found = {row.place or row.key: row.read(row.key, getattr(given, row.key)) for row in ROWS if row.read}
    of_engine = {name.removeprefix("engine."): found.pop(name) for name in list(found) if name.startswith("engine.")}
    if found["https_address"] and not found["tls_cert"]:  # nsqd has one by default, and leaves it closed then
        raise BadInput("https_address", found["https_address"], "needs tls_cert and tls_key")
    from_environment = os.environ.get("SRTM_DISTRIBUTOR", "")
    return BrokerConfig(
        **found,
        distributors=tuple(given.distributor or [url.strip() for url in from_environment.split(",") if url.strip()]),
        auth_by_http=True,
        token=_token(given),
        tokens=Tokens.read("tokens", given.tokens) if given.tokens else None,
        ca_file=ca_file(given.ca_file),
        engine=EngineConfig(
            **of_engine,
            tls_required=given.tls_required or ("true" if given.tls_client_auth_policy else "false"),
            mqtt_ws_origins=_origins(given),
        ),
    )


def _token(given: argparse.Namespace) -> OwnToken | None:
    if given.token_file is not None and given.token is not None:
        raise BadInput("token_file", given.token_file, "must not be given together with --token")
    if given.token_file is not None:
        return token_of_file("token_file", given.token_file)
    return given.token or os.environ.get("SRTM_TOKEN") or None


def _origins(given: argparse.Namespace) -> tuple[str, ...] | None:
    """Whose pages may use WebSocket; None: all. Raises BadInput."""
    origins: list[str] | None = given.mqtt_ws_origin
    if origins is None:
        return None if given.mqtt_password_file or given.mqtt_allow_anonymous else _OWN_PAGES
    for origin in origins:
        if origin != "*" and not _ORIGIN.fullmatch(origin):
            raise BadInput("mqtt_ws_origin", origin, "must be https://HOST[:PORT] without a path, a host, or *")
    return None if "*" in origins else tuple(origins)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "srtm broker",
        description="Run a broker: alone it is a small nsqd.",
        allow_abbrev=False,
        formatter_class=FlagHelp,
        add_help=False,
    )
    for row in ROWS:
        said: dict[str, Any] = {"metavar": row.value, "default": row.default, **row.more}
        text = row.help.replace("{default}", "(default: %(default)s)")
        given = {name: value for name, value in said.items() if value is not None}
        parser.add_argument(f"--{row.name}", help=text, **given)
    parser.add_argument("-h", "--help", action="help", help="show this message and exit")
    return parser
