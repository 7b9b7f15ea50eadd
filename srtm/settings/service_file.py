"""``srtm.toml``: one file with the settings of all services, a section for each, under the names of their flags.

A flag counts before the environment (``$SRTM_SERVICE_KEY``, as ``$SRTM_BROKER_MCAP``), this before the file. Settings
of file and environment become words in front of the flags that were given, so each is read and checked by one parser.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Literal

from srtm.errors import BadInput

FILE_VARIABLE = "SRTM_CONFIG"
FLAG = "--config"
SERVICES = ("broker", "distributor", "adaptor", "limit", "up")

Kind = Literal["value", "switch", "list"]
_RULES: dict[Kind, str] = {
    "value": "must be text or a number",
    "switch": "must be true or false",
    "list": "must be text or a list of texts",
}
# {setting: the variable that services read without this module}
_OLDER_VARIABLES = {
    "distributor": "SRTM_DISTRIBUTOR",
    "token": "SRTM_TOKEN",
    "token_file": "SRTM_TOKEN",
    "ca_file": "SRTM_CA_FILE",
}
_ONE_OF = ({"token", "token_file"},)  # settings that say the same: the one that counts drops the other


@dataclass(frozen=True)
class Setting:
    """An option of a service. ``key``: its name in the file; ``flags``: all its spellings, the first is shown.

    ``value``: what its help calls the value, such as FILE.
    """

    key: str
    flags: tuple[str, ...]
    kind: Kind
    value: str = ""

    @classmethod
    def of_flags(cls, flags: Iterable[str], kind: Kind, value: str = "") -> Setting:
        """Return the setting of an option with these spellings."""
        long = tuple(flag for flag in flags if flag.startswith("--"))
        return cls(long[0].removeprefix("--").replace("-", "_"), long, kind, value)

    def is_in(self, arguments: Sequence[str]) -> bool:
        """Whether ``arguments`` have this option."""
        return any(word.partition("=")[0] in self.flags for word in arguments)


Settings = Mapping[str, Setting]


def by_key(settings: Iterable[Setting]) -> Settings:
    """Return {key: setting}, without those that a file cannot have."""
    return {setting.key: setting for setting in settings if setting.key not in ("config", "help", "json")}


def with_file(service: str, settings: Settings, arguments: Sequence[str], environ: Mapping[str, str]) -> list[str]:
    """Return ``arguments`` behind the words that file and environment stand for.

    The file is that of ``--config FILE``, else of $SRTM_CONFIG; without either there is none. Raises BadInput.
    """
    if "--help" in arguments or "-h" in arguments:
        return list(arguments)
    file, given = _taken(arguments)
    file = file or environ.get(FILE_VARIABLE) or None
    section = {} if file is None else read_section(Path(file), service, settings)
    from_environment = _from_environment(service, settings, environ)
    taken = {key for key, setting in settings.items() if setting.is_in(given)}
    low = {key: value for key, value in section.items() if not _is_said(key, {*taken, *from_environment}, environ)}
    middle = {key: value for key, value in from_environment.items() if not _is_said(key, taken, {})}
    return [*_words(low), *_words(middle), *given]


def read_section(path: Path, service: str, settings: Settings) -> dict[str, list[str]]:
    """Return {key: words} of a service's section; no section: nothing. Raises BadInput, which names the key."""
    section = read_file(path).get(service, {})
    return {
        key: words_of(f"{path}: {service}.{key}", _known(f"{path}: {service}", key, settings), value)
        for key, value in section.items()
    }


def read_file(path: Path) -> dict[str, dict[str, object]]:
    """Return {service: section} of a service file. Raises BadInput."""
    from srtm.toml_text import read_toml  # a broker that has no file starts without it

    try:
        document = read_toml("config", str(path), path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadInput("config", str(path), f"must be a file that can be read ({error.strerror})") from None
    except UnicodeDecodeError:
        raise BadInput("config", str(path), "must be UTF-8") from None
    for name, section in document.items():
        if name not in SERVICES:
            raise BadInput(f"{path}: {name}", None, f"no such section; {_nearest(name, SERVICES)}")
        if not isinstance(section, dict):
            raise BadInput(f"{path}: {name}", section, f"must be a section: [{name}]")
    return document


def words_of(field: str, setting: Setting, value: object) -> list[str]:
    """Return the words of the command line that stand for ``value`` of a setting. Raises BadInput."""
    flag = setting.flags[0]
    if setting.kind == "switch":
        if not isinstance(value, bool):
            raise BadInput(field, value, _RULES["switch"])
        return [flag] if value else []
    values = value if setting.kind == "list" and isinstance(value, list) else [value]
    for each in values:
        if isinstance(each, bool) or not isinstance(each, str | int | float):
            raise BadInput(field, value, _RULES[setting.kind])
    return [f"{flag}={each}" for each in values]


def _known(place: str, key: str, settings: Settings) -> Setting:
    if key not in settings:
        raise BadInput(f"{place}.{key}", None, f"no such setting; {_nearest(key.replace('-', '_'), settings)}")
    return settings[key]


def _nearest(name: str, known: Iterable[str]) -> str:
    close = get_close_matches(name, list(known), n=1)
    return f"did you mean {close[0]}?" if close else f"there are {', '.join(sorted(known))}"


def _taken(arguments: Sequence[str]) -> tuple[str | None, list[str]]:
    """Take ``--config FILE`` out of ``arguments``. Raises BadInput where the file is missing."""
    file, rest, words = None, [], iter(arguments)
    for word in words:
        flag, equals, value = word.partition("=")
        if flag != FLAG:
            rest.append(word)
            continue
        file = value if equals else next(words, "")
        if not file:
            raise BadInput("config", None, "must be followed by a file: --config srtm.toml")
    return file, rest


def _from_environment(service: str, settings: Settings, environ: Mapping[str, str]) -> dict[str, list[str]]:
    """Return {key: words}. Other variables of such names are left alone: orchestrators set some."""
    found = {}
    for key, setting in settings.items():
        variable = f"SRTM_{service.upper()}_{key.upper()}"
        text = environ.get(variable, "")
        if text:
            found[key] = words_of(f"${variable}", setting, _value(setting.kind, text))
    return found


def _value(kind: Kind, text: str) -> object:
    if kind == "switch":
        return {"true": True, "false": False}.get(text.lower(), text)
    return [each.strip() for each in text.split(",")] if kind == "list" else text


def _is_said(key: str, said: set[str], environ: Mapping[str, str]) -> bool:
    """Whether something that counts more says what ``key`` would."""
    same = next((group for group in _ONE_OF if key in group), {key})
    return bool(same & said) or bool(environ.get(_OLDER_VARIABLES.get(key, "")))


def _words(found: Mapping[str, list[str]]) -> list[str]:
    return [word for words in found.values() for word in words]
