"""Every field of a topic document with every kind of invalid value, in JSON by HTTP and in a TOML file.

The refusal names field, value and rule, and nothing has changed.
"""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import trio

from distributor.api.app import make_app
from srtm.errors import BadInput
from srtm.topics.file import read_topic_file
from srtm.topics.spec import parse_topic_json
from tests.support.distributor_in_process import Distributor, spec

MODEL = {"count": 2, "rate": 3.0, "group_size": 2, "id_prefix": "p", "process": "poisson", "batch": 1, "contract": ""}
COLUMNS = {"ids": ["a", "b"], "rates": [3.0, 4.0], "groups": ["g", "g"], "process": "poisson", "batch": 1}
LIST = {"csv_text": "id,rate,correlation_group\nc,5,\n", "process": "poisson", "batch": 1}
GOOD: dict[str, Any] = {
    "name": "roads",
    "rate": 100.0,
    "burst": 5.0,
    "on_excess": "delay",
    "mode": "static",
    "lease": "keep",
    "placement": "srtm",
    "split": "fitted",
    "seed": 1,
    "mqtt": {
        "filters": ["roads/+/speed", "roads/closed"],
        "name": "roads/nsq/speed",
        "v3_excess": "close",
        "groups": ["$share/w/roads/#"],
    },
    "contracts": {"publishers": "", "consumers": "", "tenant": ""},
    "slo": {"percentile": 99.0, "latency_ms": 1.0},
    "publishers": [MODEL, COLUMNS, LIST],
}

NO_NUMBER = ["many", True, [], {}]
NO_POSITIVE = [*NO_NUMBER, -1, 0, math.nan, math.inf, -math.inf, 1e300]
NO_TEXT = [7, True, [], {}]
NO_WORD = ["", "nosuch", *NO_TEXT]
NO_COUNT = [*NO_NUMBER, -1, 0, 0.5, math.nan, math.inf, 1e300]
LONG = "x" * 300

BAD: dict[tuple[str | int, ...], list[Any]] = {
    ("name",): [*NO_TEXT, "", "a b", "a/b", "\u00e9", LONG],
    ("rate",): NO_POSITIVE,
    ("burst",): [*NO_POSITIVE, 0.5, "AUTO"],
    ("on_excess",): NO_WORD,
    ("mode",): NO_WORD,
    ("lease",): [*NO_TEXT, "", "nosuch", "-5s", "nan"],
    ("placement",): NO_WORD,
    ("split",): NO_WORD,
    ("seed",): [*NO_NUMBER, -1, 0.5, 2**32, math.nan, math.inf],
    ("mqtt",): [7, "a/#", [], True],
    ("mqtt", "filters"): [7, "a/#", True, {}, ["a/+", "a/b"], ["a"] * 65],
    ("mqtt", "filters", 0): [*NO_TEXT, "", "a/#/b", "a/b#", "a+", "$SYS/#", "a\x00", "x" * 1_025, "a/" * 200],
    ("mqtt", "name"): [*NO_TEXT, "", "roads/+/speed", "roads/#", "$SYS/a", "roads/open", "a\x00"],
    ("mqtt", "v3_excess"): NO_WORD,
    ("mqtt", "groups"): [7, "$share/w/roads/#", True, {}, ["$share/w/roads/#"] * 2, ["$share/w/roads/#"] * 65],
    ("mqtt", "groups", 0): [
        *NO_TEXT,
        "",
        "w",
        "roads/#",
        "$share/w",
        "$share//roads",
        "$share/w+/roads",
        "$share/w/",
        "$share/w/a/#/b",
        "$share/w/$SYS/#",
        "$share/w/rails/#",
        "$share/w/a\x00",
        "$share/w/" + "a/" * 200,
    ],
    ("contracts",): [7, "a", [], True],
    ("contracts", "publishers"): [*NO_TEXT, "a\n", LONG],
    ("contracts", "consumers"): [*NO_TEXT, "a\n", LONG],
    ("contracts", "tenant"): [*NO_TEXT, "a\n", LONG],
    ("slo",): [7, "fast", [], True, {}],
    ("slo", "percentile"): [*NO_POSITIVE, 42, 100],
    ("slo", "latency_ms"): [value for value in NO_POSITIVE if value != 1e300],
    ("publishers",): [7, "all", True, {}],
    ("publishers", 0): [7, "one", [], True, {}],
    ("publishers", 0, "count"): [*NO_COUNT, 10**8],
    ("publishers", 0, "rate"): NO_POSITIVE,
    ("publishers", 0, "group_size"): [value for value in NO_COUNT if value != 1e300],
    ("publishers", 0, "id_prefix"): [*NO_TEXT, LONG, "a\x00"],
    ("publishers", 0, "process"): NO_WORD,
    ("publishers", 0, "batch"): NO_COUNT,
    ("publishers", 0, "contract"): [*NO_TEXT, "a\n", LONG],
    ("publishers", 1, "ids"): [7, "a", True, {}, [7, "b"], ["", "b"], ["a", "a"], [LONG, "b"], ["a\n", "b"], ["a"]],
    ("publishers", 1, "rates"): [
        7,
        "a",
        True,
        {},
        [1],
        [1, 2, 3],
        ["x", 1],
        [-1, 1],
        [0, 1],
        [math.nan, 1],
        [math.inf, 1],
    ],
    ("publishers", 1, "groups"): [7, "a", True, {}, ["g"], [7, "g"], [LONG, "g"]],
    ("publishers", 1, "process"): [*NO_WORD, ["poisson"] * 3],
    ("publishers", 1, "batch"): [*NO_COUNT, [1, 1, 1]],
    ("publishers", 2, "csv_text"): [
        *NO_TEXT,
        "",
        "id,rate,correlation_group\nc\n",
        "id,rate,correlation_group\nc,fast,\n",
        "id,rate,correlation_group\nc,-1,\n",
        "id,rate,correlation_group\nc,nan,\n",
        "id,rate,correlation_group\nc,inf,\n",
        "id,rate,correlation_group\nc,5,\nc,5,\n",
        f"id,rate,correlation_group\n{LONG},5,\n",
        'id,rate,correlation_group\n"c,5,\n',
    ],
}
CASES = [
    pytest.param(path, value, id=f"{'.'.join(map(str, path))}={value!r:.20}")
    for path, all_ in BAD.items()
    for value in all_
]


def dotted(path: tuple[str | int, ...]) -> str:
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).removeprefix(".")


def changed(path: tuple[str | int, ...], value: object) -> dict[str, Any]:
    document: Any = copy.deepcopy(GOOD)
    place = document
    for part in path[:-1]:
        place = place[part]
    place[path[-1]] = value
    return document


# What a row of a column, a line of a list, or one of many publishers is called.
ALSO = {
    "ids": ("publishers[1][", "publishers[1].rates"),
    "groups": ("publishers[1][",),
    "id_prefix": ("publishers[0].id", "publishers[0].correlation_group"),
    "csv_text": ("publishers[2].csv", "publishers[2] ", "publishers[2]"),
}


def names(field: str, path: tuple[str | int, ...]) -> bool:
    """Whether ``field`` is what stands at ``path``, or something in it."""
    return field.startswith((dotted(path), *ALSO.get(str(path[-1]), ())))


class Service:
    def __init__(self, folder: Path) -> None:
        self.opened: Distributor = trio.run(Distributor.open, folder / "s.sqlite3")
        trio.run(self.opened.submit, spec("roads", count=2))
        self.transport = httpx.ASGITransport(make_app(self.opened.registry, self.opened.syncing))

    def state(self) -> tuple[object, ...]:
        registry = self.opened.registry
        return registry.version, dict(registry.topics), dict(registry.decisions)

    def put(self, content: bytes) -> httpx.Response:
        async def put() -> httpx.Response:
            async with httpx.AsyncClient(transport=self.transport, base_url="http://d") as client:
                return await client.put("/v1/topics/roads", content=content)

        return trio.run(put)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    made = Service(tmp_path_factory.mktemp("distributor"))
    yield made
    trio.run(made.opened.aclose)


def check(problem: dict[str, Any], path: tuple[str | int, ...]) -> None:
    assert names(problem["field"], path), problem
    assert problem["rule"], problem
    assert problem["field"] in problem["detail"]
    assert problem["rule"] in problem["detail"]


def test_the_good_document_is_taken(service: Service, tmp_path: Path) -> None:
    assert service.put(json.dumps({**GOOD, "rate": 101.0}).encode()).status_code == 200
    assert len(parse_topic_json(read_topic_file(toml_file(tmp_path, GOOD))).publishers) == 5


@pytest.mark.parametrize(("path", "value"), CASES)
def test_a_bad_value_in_json_is_refused_by_its_field(service: Service, path, value) -> None:
    before = service.state()
    answer = service.put(json.dumps(changed(path, value)).encode())
    assert answer.status_code == 400, answer.text
    assert service.state() == before
    if "NaN" in json.dumps(value) or "Infinity" in json.dumps(value):
        path = ("body",)  # JSON has no such number
    check(answer.json(), path)


@pytest.mark.parametrize(("path", "value"), CASES)
def test_a_bad_value_in_a_file_is_refused_by_its_field(tmp_path: Path, path, value) -> None:
    with pytest.raises(BadInput) as refused:
        parse_topic_json(read_topic_file(toml_file(tmp_path, changed(path, value))))
    error = refused.value
    check({"field": error.field, "rule": error.rule, "detail": str(error)}, path)


@pytest.mark.parametrize("place", [(), ("slo",), ("publishers", 0), ("publishers", 1), ("publishers", 2)])
def test_an_unknown_key_is_refused_wherever_it_stands(service: Service, tmp_path: Path, place) -> None:
    document = changed((*place, "nosuchkey"), 5)
    before = service.state()
    problem = service.put(json.dumps(document).encode()).json()
    assert (problem["field"], problem["value"]) == (dotted((*place, "nosuchkey")), 5)
    assert "no such key" in problem["rule"]
    assert service.state() == before
    with pytest.raises(BadInput, match="no such key"):
        parse_topic_json(read_topic_file(toml_file(tmp_path, document)))


def test_a_key_that_stands_twice_in_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "twice.toml").write_text('name = "a"\nname = "b"\n')
    with pytest.raises(BadInput, match="must be TOML"):
        read_topic_file(tmp_path / "twice.toml")


def toml_file(folder: Path, document: dict[str, Any]) -> Path:
    """Inline tables throughout: the same values, whatever they are."""
    path = folder / "topic.toml"
    path.write_text("".join(f"{key} = {toml(value)}\n" for key, value in document.items()), encoding="utf-8")
    return path


def toml(value: object) -> str:
    match value:
        case bool():
            return str(value).lower()
        case int() | float():
            return repr(value)  # nan and inf are TOML's own words
        case list():
            return f"[{', '.join(toml(one) for one in value)}]"
        case dict():
            return f"{{{', '.join(f'{key} = {toml(one)}' for key, one in value.items())}}}"
    return json.dumps(value)
