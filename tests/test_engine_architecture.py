"""Layers of the engine (``broker/engine/src``): which folder imports which, its size, and its first words."""

from __future__ import annotations

import re
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

SRC = Path(__file__).resolve().parent.parent / "broker" / "engine" / "src"

# Files beside ``lib.rs`` that any folder may import. They import one another only as this table says.
LEAVES: dict[str, set[str]] = {
    "config": {"time"},
    "event": {"time"},
    "id": set(),
    "keys": set(),
    "memory": set(),
    "time": set(),
    "timer": {"keys", "time"},
}
# {folder: what it imports}. A folder without a row fails.
ARROWS: dict[str, set[str]] = {
    "limiter": {"memory", "time"},
    "arrival": {"keys", "time"},
    "storage": {"id", "time"},
    "protocol": {"config", "id", "time"},
    "http": {"config", "keys", "memory", "protocol", "time"},
    "transport": {"config", "keys", "memory", "protocol", "time"},
    "telemetry": {"arrival", "limiter", "keys", "time", "timer"},
    "queueing": {"limiter", "protocol", "storage", "telemetry", *LEAVES},
    "scheduling": {"protocol", "queueing", "config", "event", "keys", "memory", "time", "timer"},
    "mqtt": {
        "limiter",
        "protocol",
        "queueing",
        "storage",
        "telemetry",
        "event",
        "id",
        "keys",
        "memory",
        "time",
        "timer",
    },
    "clients": {
        "http",
        "limiter",
        "mqtt",
        "protocol",
        "queueing",
        "scheduling",
        "transport",
        "id",
        "keys",
        "memory",
        "time",
        "timer",
    },
    "engine": {
        "arrival",
        "clients",
        "http",
        "limiter",
        "mqtt",
        "protocol",
        "queueing",
        "scheduling",
        "storage",
        "telemetry",
        "transport",
        *LEAVES,
    },
    "io": {
        "arrival",
        "engine",
        "http",
        "limiter",
        "protocol",
        "scheduling",
        "storage",
        "telemetry",
        "transport",
        "config",
        "event",
        "keys",
        "time",
    },
}
# Test support imports everything, and nothing but tests imports it. Its files are named after what they test.
SUPPORT = {"harness", "tests"}
MODULES_IN_A_FOLDER = 14
# Names that several folders may have for the same kind of thing.
COMMON_NAMES = {"mod", "config", "service", "options", "errors", "view", "document", "run", "policy", "traffic"}
# Names that say nothing to a reader who does not know the history.
RETIRED_NAMES = {
    "besides",
    "book",
    "building",
    "burial",
    "carried",
    "crumb",
    "crumbs",
    "dear",
    "front",
    "heard",
    "laboratory",
    "leisure",
    "leisurely",
    "marks",
    "moved",
    "overdue",
    "parking",
    "parked",
    "postponed",
    "pump",
    "rest",
    "restless",
    "share",
    "slice",
    "slices",
    "stranger",
    "strangers",
    "told",
    "untold",
}
PATH = re.compile(r"\bcrate::(?:(\w+)|\{([^}]*)\})")
ITEMS = re.compile(r"\bcrate::((?:\w+::)*)(\{[^}]*\}|\w+)")
TESTS = re.compile(r'^#\[cfg\(test\)\]\n(?:#\[path = "[^"]*"\]\n)?mod tests\b', re.MULTILINE)


def top_of(path: Path) -> str:
    return path.relative_to(SRC).parts[0].removesuffix(".rs")


def sources() -> list[Path]:
    return [path for path in sorted(SRC.rglob("*.rs")) if top_of(path) not in SUPPORT]


def imports(text: str) -> set[str]:
    """What ``crate::...`` paths begin with, in code and comments, but for a file's own tests."""
    found = PATH.findall(TESTS.split(text)[0])
    names = {name for one, several in found for name in [one, *re.split(r"[\s,]+", several)] if name}
    return {name.split("::")[0] for name in names}


def module_of(path: Path) -> str:
    return path.relative_to(SRC).with_suffix("").as_posix().removesuffix("/mod").replace("/", "::")


def imported_modules(text: str, modules: set[str]) -> set[str]:
    """Of ``modules`` those that the ``crate::...`` paths of a file lead to."""
    found = set()
    for before, last in ITEMS.findall(TESTS.split(text)[0]):
        for item in re.split(r"[\s,]+", last.strip("{}")):
            parts = [part for part in f"{before}{item}".split("::") if part]
            while parts and "::".join(parts) not in modules:
                parts.pop()
            found.add("::".join(parts))
    return found - {""}


def folders() -> list[Path]:
    return sorted({path.parent for path in sources()} - {SRC})


def identity(path: Path) -> str:
    return path.relative_to(SRC).as_posix()


def test_imports_are_read_as_rust_has_them() -> None:
    code = "use crate::a::{b, c};\nuse crate::{d::e, f};\nlet x = crate::g::h();\n"
    tests = "#[cfg(test)]\nmod tests {\n    use crate::i;\n}\n"
    assert imports(code + tests) == {"a", "d", "f", "g"}


def test_every_folder_and_leaf_has_a_row() -> None:
    assert {top_of(path) for path in sources()} == {*ARROWS, *LEAVES, "lib"}


def test_imports_go_as_the_table_says() -> None:
    table = ARROWS | LEAVES
    found: dict[str, set[str]] = {name: set() for name in table}
    for path in sources():
        if top_of(path) != "lib":
            found[top_of(path)] |= imports(path.read_text()) - {top_of(path)}
    assert found == table


def test_the_table_has_no_circle() -> None:
    order = list(TopologicalSorter(ARROWS | LEAVES).static_order())
    assert order[-1] == "io"


def test_no_files_import_one_another_in_a_circle() -> None:
    modules = {module_of(path): path for path in sources() if path.name != "lib.rs"}
    graph = {name: imported_modules(path.read_text(), set(modules)) - {name} for name, path in modules.items()}
    assert len(graph["engine"]) > 20
    assert graph["engine::input"] >= {"engine", "clients::pending_input"}
    TopologicalSorter(graph).prepare()


def test_what_extends_the_engine_is_in_its_folder() -> None:
    extended = [identity(path) for path in sources() if re.search(r"^impl Engine\b", path.read_text(), re.MULTILINE)]
    assert extended
    assert [path for path in extended if not path.startswith("engine/")] == []


@pytest.mark.parametrize("folder", folders(), ids=identity)
def test_a_folder_is_small_and_says_what_it_is(folder: Path) -> None:
    modules = {path.stem for path in folder.glob("*.rs")} | {path.name for path in folder.iterdir() if path.is_dir()}
    assert len(modules - {"mod"}) <= MODULES_IN_A_FOLDER
    first = re.match(r"(?://![^\n]*\n)+", (folder / "mod.rs").read_text())
    assert first is not None
    words = " ".join(first.group().replace("//!", "").split())
    assert re.search(r"\b[Ii]mports\b", words), "it says what it may import"
    assert "Begin with" in words, "it says where to begin reading"


def test_no_file_name_is_used_twice_or_tells_nothing() -> None:
    names = [path.stem for path in sources() if path.stem not in COMMON_NAMES]
    assert sorted(name for name in set(names) if names.count(name) > 1) == []
    assert sorted({*names, *(folder.name for folder in folders())} & RETIRED_NAMES) == []
