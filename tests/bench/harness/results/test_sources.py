from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from bench.harness.results.sources import PRODUCT, SIMULATED, commit, commits_since, fingerprint, uncommitted


def git(root: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    command = ["git", "-C", str(root), *identity, *arguments]
    # Under a hook or ``git rebase --exec`` GIT_DIR names the project's own repository: never write to that.
    env = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    return subprocess.run(command, env=env, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    for name in ("broker/a.py", "bench/b.py", "docs/c.md"):
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("1\n")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-qm", "first")
    return tmp_path


def test_a_commit_is_dirty_where_sources_are_not_committed_and_what_commands_write_is_none(checkout: Path) -> None:
    clean = git(checkout, "rev-parse", "--short=12", "HEAD")
    (checkout / "docs/c.md").write_text("2\n")
    assert (commit(checkout), uncommitted(checkout)) == (clean, [])
    (checkout / "broker/a.py").write_text("2\n")
    assert (commit(checkout), uncommitted(checkout)) == (f"{clean}-dirty", ["broker/a.py"])


def test_runs_may_stand_together_within_one_commit_and_one_state_of_its_sources(checkout: Path) -> None:
    seen = [fingerprint(checkout)]
    (checkout / "docs/c.md").write_text("2\n")
    assert fingerprint(checkout) == seen[0]
    (checkout / "broker/a.py").write_text("2\n")
    seen.append(fingerprint(checkout))
    git(checkout, "commit", "-qam", "second")
    seen.append(fingerprint(checkout))
    assert len(set(seen)) == 3
    assert None not in seen


def test_commits_count_that_changed_what_a_result_is_made_of(checkout: Path) -> None:
    first = git(checkout, "rev-parse", "--short=12", "HEAD")
    for name in ("broker/a.py", "bench/b.py", "broker/a.py"):
        with (checkout / name).open("a") as file:
            file.write("more\n")
        git(checkout, "commit", "-qam", name)
    assert commits_since(first, ["broker"], checkout) == 2
    assert commits_since(f"{first}-dirty", ["broker", "bench"], checkout) == 3
    assert commits_since("0123456789ab", ["broker"], checkout) is None


def test_another_repository_in_the_environment_is_not_asked(
    checkout: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = commit(checkout)
    monkeypatch.setenv("GIT_DIR", str(tmp_path_factory.mktemp("other")))
    assert commit(checkout) == asked


def test_outside_a_checkout_git_says_nothing(tmp_path: Path) -> None:
    assert (commit(tmp_path), fingerprint(tmp_path), uncommitted(tmp_path)) == (None, None, [])


@pytest.mark.parametrize("path", [*SIMULATED, *PRODUCT])
def test_what_results_are_made_of_is_there(path: str) -> None:
    assert (Path(__file__).resolve().parents[4] / path).exists()
