from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from bench.sources import ALWAYS, sources_of, unchanged_since


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """``bench.one`` imports ``bench.helper``; ``bench.other`` does not."""
    (tmp_path / "bench").mkdir()
    for name, text in {
        "__init__": "",
        "one": "import json\nfrom bench import helper\n",
        "helper": "def f():\n    from bench.inner import g\n    return g\n",
        "inner": "from bench.one import f\n",
        "other": "",
    }.items():
        (tmp_path / "bench" / f"{name}.py").write_text(text)
    _git(tmp_path, "init", "-q")
    _git(tmp_path, "add", "-A")
    _git(tmp_path, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "first")
    return tmp_path


def _git(root: Path, *arguments: str) -> str:
    return subprocess.run(["git", "-C", str(root), *arguments], check=True, capture_output=True, text=True).stdout


def test_a_module_is_made_of_all_of_ours_that_it_imports_directly_or_not(checkout: Path) -> None:
    expected = [f"bench/{name}.py" for name in ("__init__", "helper", "inner", "one")]
    assert sources_of(["bench.one"], checkout) == [*expected, *ALWAYS]


def test_a_change_of_another_module_changes_nothing_and_one_of_its_own_does(checkout: Path) -> None:
    head, paths = _git(checkout, "rev-parse", "HEAD").strip(), sources_of(["bench.one"], checkout)
    (checkout / "bench" / "other.py").write_text("x = 1\n")
    assert unchanged_since(head, paths, checkout)
    (checkout / "bench" / "inner.py").write_text("x = 1\n")
    assert not unchanged_since(head, paths, checkout)


def test_what_came_of_changed_or_unknown_sources_is_never_taken_for_the_same(checkout: Path) -> None:
    head = _git(checkout, "rev-parse", "HEAD").strip()
    for commit in (f"{head}-dirty", None, "0" * 40):
        assert not unchanged_since(commit, [], checkout)


def test_every_path_that_always_counts_is_there() -> None:
    root = Path(__file__).resolve().parents[2]
    assert all((root / path).exists() for path in ALWAYS)
    assert "bench/experiments/layouts.py" in sources_of(["bench.experiments.fig06"])
    assert "bench/experiments/fig08.py" not in sources_of(["bench.experiments.fig06"])
