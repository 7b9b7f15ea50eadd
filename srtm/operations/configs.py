"""``--config`` of services, and ``srtm config check``: whether they would start with a file's settings."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import typer

from srtm.console.output import JsonOption, show
from srtm.console.running import no_services
from srtm.console.usage import usage_text
from srtm.errors import BadInput
from srtm.net.address import parse_address
from srtm.net.tokens import read_text
from srtm.settings.service_file import FILE_VARIABLE, Setting, Settings, by_key, read_file, read_section, with_file
from srtm.text import plural

app = typer.Typer(no_args_is_help=True, help="Settings of services: check a file.", rich_markup_mode=None)

_ConfigOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help=f"Settings (TOML) that count where neither flag nor environment does; ${FILE_VARIABLE}."
    ),
]
# {service: the words by which typer knows it}; the broker has a parser of its own.
_COMMANDS = {"distributor": ("distributor",), "adaptor": ("adaptor",), "limit": ("limit", "serve"), "up": ("up",)}
_WRITTEN = ("ready_file",)  # files that a service makes
# Settings that a service needs and that its file may leave to flags.
_LEFT_TO_FLAGS = {"broker": {"name": "any"}, "up": {"brokers": "1", "data": os.curdir}}


def add_config(command: Callable[..., int]) -> Callable[..., int]:
    """Add ``--config`` to the help of a service. ``with_service_file`` has taken it away when the service runs."""

    @wraps(command)
    def run(config: Path | None = None, **given: Any) -> int:
        del config
        return command(**given)

    signature = inspect.signature(command, eval_str=True)
    more = inspect.Parameter("config", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=_ConfigOption)
    run.__signature__ = signature.replace(parameters=[*signature.parameters.values(), more])  # type: ignore[attr-defined]
    run.__annotations__ = {**inspect.get_annotations(command, eval_str=True), "config": _ConfigOption}
    return run


def with_service_file(root: Any, arguments: Sequence[str]) -> list[str]:
    """Return ``srtm ARGUMENTS...`` with the settings of file and environment, if they run a service. Raises BadInput.

    ``root``: typer's command of ``srtm``.
    """
    for service, words in _COMMANDS.items():
        if tuple(arguments[: len(words)]) == words:
            settings = _settings_of(_command(root, service))
            return [*words, *with_file(service, settings, arguments[len(words) :], os.environ)]
    return list(arguments)


@app.command()
def check(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A service file, such as srtm.toml.")],
    json_file: JsonOption = None,
) -> None:
    """Check all settings of a service file, and the files that they name. Nothing is started."""
    root = context.find_root().command
    counts = {service: _check_section(root, file, service) for service in read_file(file)}
    lines = [f"{service}: {count} {plural(count, 'setting')}, all right" for service, count in counts.items()]
    result = {"file": str(file), "settings": counts}
    show("config check", result, json_file, lambda console: console.print("\n".join(lines) or f"{file} is empty"))


def known_settings(root: Any, service: str) -> Settings:
    """Return what a service file can say of a service. ``root``: typer's command of ``srtm``."""
    from broker.options import settings

    return settings() if service == "broker" else _settings_of(_command(root, service))


def _check_section(root: Any, path: Path, service: str) -> int:
    """Check a section and return its number of settings. Raises BadInput."""
    from broker.options import check_arguments

    known = known_settings(root, service)
    section = read_section(path, service, known)
    left = {key: value for key, value in _LEFT_TO_FLAGS.get(service, {}).items() if key not in section}
    words = [f"{known[key].flags[0]}={value}" for key, value in left.items()]
    words += [word for each in section.values() for word in each]
    try:
        _check_values(service, known, section)
        if service == "broker":
            check_arguments(words)
        else:
            _run_nothing(_command(root, service), words)
    except BadInput as error:
        raise BadInput(f"{path}: {service}.{error.field}", error.value, error.rule) from None
    return len(section)


def _check_values(service: str, known: Settings, section: Mapping[str, Sequence[str]]) -> None:
    """Check what a service looks at only when it starts: files, directories, addresses. Raises BadInput."""
    from srtm.web.serving import Certificate

    readers = _readers(service)
    given = [(key, word.partition("=")[2]) for key, words in section.items() for word in words]
    for key, value in given:
        kind = known[key].value
        if key in readers:
            _read(key, value, readers[key])
        elif kind.startswith("FILE") and value and key not in _WRITTEN:
            read_text(key, value)
        elif kind == "HOST:PORT" and service != "broker":
            parse_address(key, value)
        elif key == "data_path" and not Path(value).is_dir():
            raise BadInput(key, value, "must be a directory that exists")
    one = dict(given)
    if one.get("tls_cert") and one.get("tls_key"):
        Certificate(one["tls_cert"], one["tls_key"]).check()


def _readers(service: str) -> dict[str, Callable[[str], object]]:
    """Return {setting: what reads its value as the service does}."""
    if service == "distributor":
        from distributor.storage.database import Database

        return {"store": Database.parse}
    if service == "limit":
        from srtm.contracts.contract_file import read_contract_file
        from srtm.contracts.subject_plans import Plans

        return {
            "contracts": lambda path: read_contract_file(Path(path)),
            "plans": lambda path: Plans.of_file(Path(path)),
        }
    return {}


def _read(key: str, value: str, read: Callable[[str], object]) -> None:
    """Raises BadInput in the name of the setting, with what is wrong in its file."""
    try:
        read(value)
    except BadInput as error:
        is_whole = error.field in ("file", key)
        raise BadInput(key, error.value if is_whole else value, error.rule if is_whole else str(error)) from None


def _run_nothing(command: Any, words: list[str]) -> None:
    """Run a service up to where it would start. Raises BadInput."""
    try:
        with no_services():
            command.main(words, prog_name="srtm", standalone_mode=False)
    except typer.TyperException as error:
        name = getattr(getattr(error, "param", None), "name", None) or "?"
        raise BadInput(name, None, usage_text(error).removeprefix("srtm: ")) from None


def _command(root: Any, service: str) -> Any:
    found = root
    for word in _COMMANDS[service]:
        found = found.commands[word]
    return found


def _settings_of(command: Any) -> Settings:
    options = [param for param in command.params if param.param_type_name == "option"]
    return by_key(
        Setting.of_flags(
            option.opts, "list" if option.multiple else "switch" if option.is_flag else "value", option.metavar or ""
        )
        for option in options
    )
