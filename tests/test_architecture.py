"""The layers are a test, not a wish: who may import whom, and which modules stay pure."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("srtm", "broker", "distributor", "adaptor", "bench")

# {package: what of ours it may import}
ALLOWED = {
    "srtm": {"srtm"},
    "broker": {"broker", "srtm", "adaptor"},
    "distributor": {"distributor", "srtm"},
    "adaptor": {"adaptor", "srtm"},
    "bench": set(PACKAGES),
}

# The command starts services, benches and the demo by late imports.
LATE_IMPORTERS = ("srtm/cli.py", "srtm/commands/", "srtm/__main__.py")

# Numbers or bytes in, values out: no event loop, no sockets, no HTTP, no store, no clock.
PURE = (
    "srtm/token_bucket/bucket.py",
    "srtm/token_bucket/exact_split.py",
    "srtm/token_bucket/replay.py",
    "srtm/token_bucket/arrival_process.py",
    "srtm/token_bucket/burst_sizing.py",
    "srtm/topics/spec.py",
    "srtm/duration.py",
    "srtm/topics/lease.py",
    "srtm/protocol.py",
    "srtm/control/message.py",
    "srtm/control/sync.py",
    "srtm/control/reports.py",
    "srtm/control/measurements.py",
    "srtm/control/histories.py",
    "srtm/control/gdrl.py",
    "srtm/control/client_views.py",
    "srtm/topics/json_schema.py",
    "srtm/errors.py",
    "srtm/console/conditions.py",
    "distributor/placement/proposals.py",
    "distributor/placement/allocation.py",
    "distributor/model/leases.py",
    "distributor/placement/quotas.py",
    "distributor/placement/planner.py",
    "distributor/model/cluster.py",
    "distributor/registry/broker_updates.py",
    "distributor/registry/desired_state.py",
    "distributor/prediction/sequential_test.py",
    "distributor/prediction/replay.py",
    "distributor/prediction/forecast.py",
    "distributor/prediction/explanation.py",
    "distributor/fitting/search.py",
    "distributor/fitting/layout_model.py",
    "distributor/fitting/retention.py",
    "distributor/fitting/moves.py",
    "distributor/model/broker_load.py",
    "distributor/placement/headroom.py",
    "distributor/sync/release_rates.py",
    "distributor/model/full_brokers.py",
    "distributor/model/columns.py",
    "distributor/placement/shares.py",
    "distributor/placement/reasons.py",
    "distributor/fitting/state_machine.py",
    "distributor/fitting/events.py",
    "distributor/fitting/round.py",
    "distributor/fitting/paper.py",
    "distributor/sync/measurement_messages.py",
    "adaptor/observations.py",
    "adaptor/policies/bounds.py",
    "adaptor/policies/proportional.py",
    "adaptor/policies/change_detection.py",
    "adaptor/policies/fitted.py",
    "adaptor/policies/central.py",
    "adaptor/policy.py",
    "adaptor/gdrl/exchange.py",
    "adaptor/gdrl/partners.py",
    "adaptor/gdrl/ledger.py",
    "adaptor/topics.py",
    "distributor/sync/misplaced_publishers.py",
    "distributor/relief/policy.py",
    "distributor/relief/sizing.py",
    "distributor/relief/values.py",
    "broker/sync/reports.py",
    "broker/sync/measurement_report.py",
    "broker/runtime/cpu_throttling.py",
    "broker/snapshot.py",
    "broker/events.py",
    "bench/harness/load/workload.py",
    "bench/harness/load/validity.py",
    "bench/harness/load/histogram_files.py",
    "bench/simulation/traffic.py",
    "bench/simulation/limiters.py",
    "bench/testbed/net/layout.py",
    "bench/testbed/net/shaping.py",
    "bench/simulation/brokers.py",
    "bench/simulation/recorded.py",
    "bench/simulation/calibration.py",
    "bench/experiments/lab/layouts.py",
    "bench/experiments/lab/points.py",
)
IMPURE_MODULES = {
    "trio",
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

# The broker answers within 0.3 s of its start: none of these may come in with it.
HEAVY = ("numpy", "scipy", "matplotlib", "fastapi", "hypercorn", "sqlalchemy", "pydantic", "typer", "rich", "httpx")


def sources(package: str) -> list[Path]:
    return sorted((ROOT / package).rglob("*.py"))


def imports(path: Path, *, top_level_only: bool = False) -> set[str]:
    """Names of the modules that a file imports, in full."""
    tree = ast.parse(path.read_text())
    nodes = tree.body if top_level_only else list(ast.walk(tree))
    found: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None and node.level == 0:
            found.add(node.module)
    return found


@pytest.mark.parametrize("package", PACKAGES)
def test_imports_go_one_way_through_the_folders(package: str) -> None:
    wrong = []
    for path in sources(package):
        name = path.relative_to(ROOT).as_posix()
        late = name.startswith(LATE_IMPORTERS)
        for module in imports(path, top_level_only=late):
            top = module.split(".")[0]
            if top in PACKAGES and top not in ALLOWED[package]:
                wrong.append(f"{name} imports {module}")
            if top == "tests":
                wrong.append(f"{name} imports {module}")
    assert wrong == []


@pytest.mark.parametrize("name", PURE)
def test_a_pure_module_imports_no_loop_no_socket_no_store_and_no_clock(name: str) -> None:
    tops = {module.split(".")[0] for module in imports(ROOT / name)}
    assert tops & IMPURE_MODULES == set()


def test_nothing_imports_asyncio() -> None:
    users = [path for package in PACKAGES for path in sources(package) if "asyncio" in imports(path)]
    assert users == []


@pytest.mark.parametrize("name", ["adaptor.gdrl.exchange", "adaptor.gdrl.partners"])
def test_what_brokers_exchange_by_comes_without_numpy(name: str) -> None:
    code = f"import sys, {name}; sys.exit(any(module in sys.modules for module in {HEAVY!r}))"
    assert subprocess.run([sys.executable, "-c", code], timeout=30, cwd=ROOT, check=False).returncode == 0


# The client library and the command reach services through these alone.
DOORS = {"srtm/client/distributor.py", "srtm/client/broker.py", "srtm/net/http_client.py"}


def test_clients_and_commands_use_nothing_but_the_http_interfaces() -> None:
    wrong = []
    for path in sources("srtm"):
        name = path.relative_to(ROOT).as_posix()
        tops = {module.split(".")[0] for module in imports(path)}
        if name not in DOORS:
            wrong += [f"{name} imports {module}" for module in tops & {"httpx", "h11"}]
        wrong += [f"{name} imports {module}" for module in tops & {"sqlalchemy", "sqlite3", "psycopg"}]
        texts = [node.value for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Constant)]
        routes = [text for text in texts if isinstance(text, str) and text.startswith("/v1/")]
        wrong += [f"{name} knows the route {route}" for route in routes if name not in DOORS]
    assert wrong == []


@pytest.mark.slow
def test_a_broker_starts_without_the_distributors_libraries() -> None:
    code = f"import sys, broker.__main__, broker.service; print([m for m in {HEAVY!r} if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=30, cwd=ROOT, check=True
    )
    assert done.stdout.strip() == "[]"


def test_only_the_extension_crate_knows_python() -> None:
    for crate in ("broker/engine", "bench/floor", "bench/loadgen"):
        assert "pyo3" not in (ROOT / crate / "Cargo.toml").read_text()
