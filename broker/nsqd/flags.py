"""``srtm nsqd``'s command line and file: Go's flag syntax, nsqd's TOML keys, and their precedence (flag, file, default;
protocol section 1). Pure: words and text in, a ``BrokerConfig`` out."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from broker.config import BrokerConfig
from broker.nsqd.options import BY_KEY, SWITCH, TABLE, TEXT, Kind, Option, Options, Value, to_config
from srtm.errors import BadInput
from srtm.toml_text import read_toml

_IGNORED = ("verbose", "worker-id")  # deprecated in nsqd itself
_BY_FLAG = {option.flag: option for option in TABLE}
_HELP = ("h", "help")


@dataclass(frozen=True)
class Given:
    """What the command line says. ``options`` has only given ones, by key of the file."""

    options: Options
    config_file: str = ""
    version: bool = False
    help: bool = False


def parse_flags(arguments: Sequence[str]) -> Given:
    """Parse up to the first word that is no flag, as Go does. Raises BadInput."""
    options: Options = {}
    ours: dict[str, Value] = {}
    left = list(arguments)
    while left:
        word = left.pop(0)
        if len(word) < 2 or not word.startswith("-") or word == "--":
            break
        name, equals, value = _split(word)
        kind = _kind_of(name)
        if not equals and not kind.switch:
            if not left:
                raise BadInput(f"--{name}", "", f"needs a value ({kind.name})")
            value = left.pop(0)
        read = _read(f"--{name}", kind.read, value if equals or not kind.switch else "true")
        if name in _HELP and read:
            return Given({}, help=True)  # whatever follows
        option = _BY_FLAG.get(name)
        if option is None:
            ours[name] = read
        else:
            options[option.toml] = options.get(option.toml, ()) + read if kind.repeats else read
    return Given(options, ours.get("config", ""), ours.get("version", False))


def _split(word: str) -> tuple[str, str, str]:
    name, equals, value = word.removeprefix("-").removeprefix("-").partition("=")
    if not name or name.startswith("-"):
        raise BadInput("flag", word, "must be -NAME or --NAME, with =VALUE or VALUE after it")
    return name, equals, value


def _kind_of(name: str) -> Kind:
    if name in _BY_FLAG:
        return _BY_FLAG[name].kind
    if name in ("version", *_IGNORED, *_HELP):
        return SWITCH
    if name == "config":
        return TEXT
    raise BadInput("flag", f"--{name}", "is not one of nsqd's")


def _read(field: str, read: Callable[[Value], Value], value: Value) -> Value:
    try:
        return read(value)
    except ValueError as error:
        raise BadInput(field, value, str(error)) from None


def parse_file(name: str, text: str) -> tuple[Options, list[str]]:
    """The options in a TOML file, and the keys that nsqd does not have, which it ignores. Raises BadInput."""
    values = read_toml("config", name, text)
    options = {
        key: _read(f"{name}: {key}", BY_KEY[key].kind.take, value) for key, value in values.items() if key in BY_KEY
    }
    return options, sorted(values.keys() - BY_KEY.keys() - {"verbose", "worker_id"})


def broker_config(flags: Options, file: Options, hostname: str) -> BrokerConfig:
    """Raises BadInput."""
    node_id = zlib.crc32(hashlib.md5(hostname.encode(), usedforsecurity=False).digest()) % 1024
    defaults = {option.toml: option.default for option in TABLE} | {"id": node_id, "broadcast_address": hostname}
    options = defaults | file | flags
    if options["tls_client_auth_policy"] and options["tls_required"] == "false":
        options["tls_required"] = "true"  # without TLS a client would skip the policy
    percentiles = options["e2e_processing_latency_percentiles"] = tuple(
        sorted(options["e2e_processing_latency_percentiles"], reverse=True)  # from several flags
    )
    _check_percentiles(percentiles)
    options["data_path"] = options["data_path"] or "."
    return to_config(options, name="nsqd")


def _check_percentiles(percentiles: tuple[float, ...]) -> None:
    for percentile in percentiles:
        if not 0 < percentile <= 1:
            raise BadInput("--e2e-processing-latency-percentile", percentile, "must be above 0 and at most 1")


def usage() -> str:
    lines = [
        "usage: srtm nsqd [FLAG]...",
        "",
        "A broker with nsqd's flags: -FLAG or --FLAG, VALUE after = or a space.",
        "",
    ]
    lines += [_usage_line(option) for option in TABLE]
    lines += [
        "  --config FILE: TOML file with these options",
        "  --version: print the version",
        "  --verbose: without effect",
        "  --worker-id: without effect",
    ]
    return "\n".join(lines) + "\n"


def _usage_line(option: Option) -> str:
    value = f" {option.kind.name.upper()}" if option.kind.name and not option.kind.switch else ""
    more = "; may be repeated" if option.kind.repeats else ""
    return f"  --{option.flag}{value}: {option.help}{more}{_default(option)}"


def _default(option: Option) -> str:
    if option.default in ("", (), False, "false"):
        return ""
    if isinstance(option.default, bool):
        return " (default true)"
    shown = f"{option.default / 1e9:g}s" if option.kind.name == "duration" else str(option.default).strip()
    return f" (default {shown})" if option.flag != "node-id" else ""
