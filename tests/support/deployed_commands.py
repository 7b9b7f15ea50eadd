"""Whether the words of a command line that a unit, an image or a chart runs are ones that ``srtm`` knows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import typer

from broker.options import settings as broker_settings
from srtm.commands.app import app
from srtm.operations.configs import _COMMANDS, _command, _settings_of
from srtm.settings.service_file import FLAG, Settings


def settings_of(service: str) -> Settings:
    """The settings of a service by key."""
    if service == "broker":
        return broker_settings()
    return _settings_of(_command(typer.main.get_command(app), service))


def unknown_words(words: Sequence[str]) -> list[str]:
    """The flags of ``SERVICE --FLAG ...`` that the service lacks; the first word if there is no such service."""
    service = next((name for name, begin in _COMMANDS.items() if tuple(words[: len(begin)]) == begin), words[0])
    if service not in ("broker", *_COMMANDS):
        return [words[0]]
    known = {flag for setting in settings_of(service).values() for flag in setting.flags} | {FLAG}
    return [word for word in words if word.startswith("--") and word.partition("=")[0] not in known]


def unknown_variables(names: Iterable[str]) -> list[str]:
    """The variables ``SRTM_SERVICE_KEY`` that name no setting."""
    known = {"SRTM_TOKEN", "SRTM_DISTRIBUTOR", "SRTM_CONFIG", "SRTM_CA_FILE"}
    for service in ("broker", *_COMMANDS):
        known |= {f"SRTM_{service.upper()}_{key.upper()}" for key in settings_of(service)}
    return [name for name in names if name.startswith("SRTM_") and name not in known]
