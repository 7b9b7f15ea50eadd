from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from bench.fingerprint import fingerprint


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    for name in ("broker/a.py", "broker/page.html", "broker/fuzz/b.rs", "docs/c.py"):
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("1\n")
    subprocess.run(["git", "-C", str(tmp_path), "add", "."], check=True)
    return tmp_path


def of(checkout: Path) -> str | None:
    return fingerprint(["broker"], but=["broker/fuzz"], root=checkout)


@pytest.mark.parametrize("name", ["broker/page.html", "broker/fuzz/b.rs", "docs/c.py"])
def test_what_is_not_measured_may_change(checkout: Path, name: str) -> None:
    before = of(checkout)
    (checkout / name).write_text("2\n")
    assert of(checkout) == before


def test_a_source_that_changes_comes_or_goes_makes_another_name(checkout: Path) -> None:
    seen = {of(checkout)}
    (checkout / "broker" / "a.py").write_text("2\n")
    seen.add(of(checkout))
    (checkout / "broker" / "new.rs").write_text("")
    seen.add(of(checkout))
    (checkout / "broker" / "a.py").unlink()
    seen.add(of(checkout))
    assert len(seen) == 4


def test_outside_a_checkout_there_is_no_name(tmp_path: Path) -> None:
    assert fingerprint(["broker"], root=tmp_path) is None
