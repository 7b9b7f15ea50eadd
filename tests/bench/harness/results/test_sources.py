from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from bench.harness.results.sources import ALWAYS, fingerprint, sources_of


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """``bench.one`` imports ``bench.helper``; ``bench.other`` does not. Besides, parts that are measured or not."""
    (tmp_path / "bench").mkdir()
    for name, text in {
        "__init__": "",
        "one": "import json\nfrom bench import helper\n",
        "helper": "def f():\n    from bench.inner import g\n    return g\n",
        "inner": "from bench.one import f\n",
        "other": "",
    }.items():
        (tmp_path / "bench" / f"{name}.py").write_text(text)
    for name in ("broker/a.py", "broker/page.html", "broker/fuzz/b.rs", "docs/c.py"):
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("1\n")
    _git(tmp_path, "init", "-q")
    _git(tmp_path, "add", "-A")
    return tmp_path


def _measured(checkout: Path) -> str | None:
    return fingerprint(["broker"], but=["broker/fuzz"], root=checkout)


def _git(root: Path, *arguments: str) -> str:
    return subprocess.run(["git", "-C", str(root), *arguments], check=True, capture_output=True, text=True).stdout


def test_a_module_is_made_of_all_of_ours_that_it_imports_directly_or_not(checkout: Path) -> None:
    expected = [f"bench/{name}.py" for name in ("__init__", "helper", "inner", "one")]
    assert sources_of(["bench.one"], checkout) == [*expected, *ALWAYS]


def test_a_change_of_another_module_changes_nothing_and_one_of_its_own_does(checkout: Path) -> None:
    paths = sources_of(["bench.one"], checkout)
    before = fingerprint(paths, root=checkout)
    (checkout / "bench" / "other.py").write_text("x = 1\n")
    assert fingerprint(paths, root=checkout) == before
    (checkout / "bench" / "inner.py").write_text("x = 1\n")
    assert fingerprint(paths, root=checkout) != before


@pytest.mark.parametrize("name", ["broker/page.html", "broker/fuzz/b.rs", "docs/c.py"])
def test_what_is_not_measured_may_change(checkout: Path, name: str) -> None:
    before = _measured(checkout)
    (checkout / name).write_text("2\n")
    assert _measured(checkout) == before


def test_a_source_that_changes_comes_or_goes_makes_another_name_committed_or_not(checkout: Path) -> None:
    seen = {_measured(checkout)}
    (checkout / "broker" / "a.py").write_text("2\n")
    seen.add(_measured(checkout))
    (checkout / "broker" / "new.rs").write_text("")
    seen.add(_measured(checkout))
    (checkout / "broker" / "a.py").unlink()
    seen.add(_measured(checkout))
    assert len(seen) == 4
    _git(checkout, "add", "-A")
    assert _measured(checkout) in seen


@pytest.mark.parametrize("name", ["calibrated.json", "highways.csv", "highways.toml"])
def test_data_that_a_result_depends_on_are_sources_too(checkout: Path, name: str) -> None:
    data = checkout / "bench" / "data" / name
    data.parent.mkdir()
    data.write_text("1\n")
    before = fingerprint(sources_of(["bench.one"], checkout), root=checkout)
    data.write_text("2\n")
    assert fingerprint(sources_of(["bench.one"], checkout), root=checkout) != before


def test_outside_a_checkout_there_is_no_name(tmp_path: Path) -> None:
    assert fingerprint(["broker"], root=tmp_path) is None


def test_every_path_that_always_counts_is_there() -> None:
    root = Path(__file__).resolve().parents[4]
    assert all((root / path).exists() for path in ALWAYS)
    assert "bench/experiments/lab/layouts.py" in sources_of(["bench.experiments.figures.fig06"])
    assert "bench/experiments/figures/fig08.py" not in sources_of(["bench.experiments.figures.fig06"])
