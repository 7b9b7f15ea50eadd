"""The layers are a test: who may import whom, which packages stay pure, how large they are and how they are named.

``tests/support/architecture.py`` has the tables. A failure says what to change in them, or that the code is wrong.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import Counter, defaultdict
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from tests.support.architecture import (
    ARROWS,
    FOUNDATION,
    FREE_NAMES,
    LARGER_PACKAGES,
    MAX_MODULES,
    PACKAGES,
    PURE,
    PURE_MODULES,
    SERVICES,
)

ROOT = Path(__file__).resolve().parent.parent
NATIVE = "srtm._native"
IMPURE_MODULES = {
    "trio",
    "anyio",
    "socket",
    "httpx",
    "h11",
    "fastapi",
    "hypercorn",
    "sqlalchemy",
    "sqlite3",
    "time",
    "subprocess",
    "threading",
    "asyncio",
}

# A broker answers within 0.3 s of its start: it imports none of these.
HEAVY = ("numpy", "scipy", "matplotlib", "fastapi", "hypercorn", "sqlalchemy", "pydantic", "typer", "rich", "httpx")

# Only these start services and benches, or read their settings.
STARTERS = {
    "srtm.cli",
    "srtm.commands.benches",
    "srtm.commands.services",
    "srtm.operations.completion",
    "srtm.operations.configs",
    "srtm.operations.stores",
}

# The client library and the command reach services through these alone.
DOORS = {"srtm.client.distributor", "srtm.client.broker", "srtm.client.limit_service", "srtm.net.http_client"}


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))}
FOLDERS = {name for name, path in MODULES.items() if path.name == "__init__.py"}


@cache
def tree(module: str) -> ast.Module:
    return ast.parse(MODULES[module].read_text())


def imported(nodes: list[ast.stmt] | list[ast.AST]) -> set[str]:
    """Full names of the modules that these statements import."""
    found: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None and node.level == 0:
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {name if name in MODULES or name == NATIVE else node.module for name in names}
    return found


@cache
def imports(module: str) -> frozenset[str]:
    """Every module that ``module`` imports, inside functions and for type checkers too."""
    return frozenset(imported(list(ast.walk(tree(module)))))


def service_of(module: str) -> str:
    return module.partition(".")[0]


def room_of(module: str) -> str:
    """The package of a module; a module at the root of a service and a ``__main__`` stand for themselves."""
    if module == NATIVE or module in FOLDERS or module.endswith(".__main__"):
        return module
    folder = module.rpartition(".")[0]
    return module if folder in PACKAGES else folder


def present_arrows() -> dict[str, set[str]]:
    arrows: dict[str, set[str]] = defaultdict(set)
    for module in MODULES:
        room = room_of(module)
        targets = {room_of(name) for name in imports(module) if service_of(name) in PACKAGES}
        if service_of(room) == "bench":  # it may import everything
            targets = {target for target in targets if service_of(target) == "bench"}
        arrows[room] |= targets - {room, *FOUNDATION}
    return {room: targets for room, targets in arrows.items() if room not in FOUNDATION}


def pure_modules() -> list[str]:
    rooms = [module for module in MODULES if room_of(module) in PURE]
    return sorted({*rooms, *PURE_MODULES})


def run_python(code: str) -> str:
    """What a fresh interpreter prints."""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, cwd=ROOT, check=True
    )
    return done.stdout.strip()


def test_every_room_has_a_row_and_every_row_a_room() -> None:
    present = present_arrows()
    wrong = [f'add a row "{room}" to ARROWS' for room in sorted(present.keys() - ARROWS.keys())]
    wrong += [
        f'remove the row "{room}" from ARROWS: there is no such package' for room in ARROWS.keys() - present.keys()
    ]
    assert wrong == []


def test_packages_import_what_their_row_allows() -> None:
    wrong = []
    for room, targets in sorted(present_arrows().items()):
        row = set(ARROWS.get(room, "").split())
        for target in sorted(targets - row):
            users = [module for module in MODULES if room_of(module) == room]
            users = [module for module in users if target in map(room_of, imports(module))]
            wrong.append(f"{room} imports {target} ({', '.join(users)}): remove the import, or add {target} to its row")
        wrong += [f"{room} imports {target} no more: remove {target} from its row" for target in sorted(row - targets)]
    assert wrong == []


def test_allowed_arrows_make_no_circle() -> None:
    try:
        TopologicalSorter({room: row.split() for room, row in ARROWS.items()}).prepare()
    except CycleError as error:
        pytest.fail(f"ARROWS has a circle: {' <- '.join(error.args[1])}")


def test_the_foundation_imports_only_itself() -> None:
    for module in FOUNDATION:
        ours = {name for name in imports(module) if service_of(name) in PACKAGES}
        assert ours <= set(FOUNDATION), module


def test_only_the_starters_of_the_command_import_services() -> None:
    others = {*SERVICES, "bench"} - {"srtm"}
    users = {module for module in MODULES if others & set(map(service_of, imports(module)))}
    assert {module for module in users if service_of(module) == "srtm"} - STARTERS == set()


def test_nothing_imports_tests_or_asyncio() -> None:
    users = [module for module in MODULES if {"tests", "asyncio"} & set(map(service_of, imports(module)))]
    assert users == []


def test_lists_of_pure_packages_name_what_is_there() -> None:
    rooms = set(map(room_of, MODULES))
    wrong = [f"remove {room} from PURE: there is no such package" for room in PURE if room not in rooms]
    wrong += [f"rename {name} in PURE_MODULES: there is no such module" for name in PURE_MODULES if name not in MODULES]
    assert wrong == []


@pytest.mark.parametrize("module", [module for module in pure_modules() if module in MODULES])
def test_pure_modules_import_no_loop_no_socket_no_store_and_no_clock(module: str) -> None:
    assert set(map(service_of, imports(module))) & IMPURE_MODULES == set()


def test_packages_stay_small() -> None:
    sizes = Counter(module.rpartition(".")[0] for module in MODULES.keys() - FOLDERS)
    large = {package: size for package, size in sizes.items() if size > LARGER_PACKAGES.get(package, MAX_MODULES)}
    assert large == {}, "split these packages"


@pytest.mark.parametrize("service", SERVICES)
def test_no_module_name_occurs_twice_within_a_service(service: str) -> None:
    names = [module.rpartition(".")[2] for module in MODULES.keys() - FOLDERS if service_of(module) == service]
    twice = {name for name, times in Counter(names).items() if times > 1} - FREE_NAMES - {"__main__"}
    assert twice == set(), "rename one of each"


def test_every_package_says_what_it_owns() -> None:
    empty = set()
    for folder in FOLDERS:
        text = ast.get_docstring(tree(folder)) or ""
        if not text or "see docs/" in text:
            empty.add(folder)
    assert empty == set(), "say what these own, what they may import and where to begin"


@pytest.mark.parametrize("name", ["adaptor.gdrl.exchange", "adaptor.gdrl.partners"])
def test_what_brokers_exchange_by_comes_without_numpy(name: str) -> None:
    assert run_python(f"import sys, {name}; print([m for m in {HEAVY!r} if m in sys.modules])") == "[]"


@pytest.mark.slow
def test_a_broker_starts_without_the_distributors_libraries() -> None:
    code = f"import sys, broker.__main__, broker.service; print([m for m in {HEAVY!r} if m in sys.modules])"
    assert run_python(code) == "[]"


def test_clients_and_commands_use_nothing_but_the_http_interfaces() -> None:
    wrong = []
    for module in MODULES:
        if service_of(module) != "srtm":
            continue
        tops = set(map(service_of, imports(module)))
        wrong += [f"{module} imports {name}" for name in tops & {"sqlalchemy", "sqlite3", "psycopg"}]
        if module in DOORS:
            continue
        wrong += [f"{module} imports {name}" for name in tops & {"httpx", "h11"}]
        texts = [node.value for node in ast.walk(tree(module)) if isinstance(node, ast.Constant)]
        wrong += [f"{module} knows the route {text}" for text in texts if str(text).startswith("/v1/")]
    assert wrong == []


def test_only_the_extension_crate_knows_python() -> None:
    for crate in ("broker/engine", "bench/floor", "bench/loadgen"):
        assert "pyo3" not in (ROOT / crate / "Cargo.toml").read_text()
