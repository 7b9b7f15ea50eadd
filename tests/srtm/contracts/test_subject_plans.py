"""A subject's plan comes from a table."""

from __future__ import annotations

from pathlib import Path

import pytest

from srtm.contracts import subject_plans as module
from srtm.contracts.subject_plans import Plans
from srtm.errors import BadInput, NotFound

FILE = 'namespace,subject,plan\napi,user:1,gold\napi,"org:2/user, jr",gold\napi,*,free\njobs,user:1,none\n'


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "plans.csv"
    path.write_text(FILE)
    return path


def test_a_place_is_filled_by_the_rest_of_the_subject(file: Path) -> None:
    plans = Plans.of_file(file)
    assert plans.named("api", "{plan}/user:1") == "gold/user:1"
    assert plans.named("api", "{plan}/org:2/user, jr") == "gold/org:2/user, jr"
    assert plans.named("api", "{plan}/user:2") == "free/user:2"
    assert plans.named("jobs", "{plan}/user:1") == "none/user:1"


def test_only_the_beginning_is_a_place(file: Path) -> None:
    plans = Plans.of_file(file)
    for subject in ("user:1", "ip:{plan}/user:1", "{plan}", "{plan}user:1", ""):
        assert plans.named("api", subject) == subject


def test_whose_plan_is_not_known_is_told(file: Path) -> None:
    with pytest.raises(NotFound, match="subject 'user:2' is not known here: a plan of namespace 'jobs'"):
        Plans.of_file(file).named("jobs", "{plan}/user:2")
    with pytest.raises(NotFound, match="plan"):
        Plans().named("api", "{plan}/user:1")


def test_a_file_is_read_anew_and_a_bad_one_changes_nothing(file: Path) -> None:
    plans = Plans.of_file(file)
    file.write_text(FILE.replace("user:1,gold", "user:1,silver"))
    plans.renew()
    assert plans.named("api", "{plan}/user:1") == "silver/user:1"
    file.write_text("nonsense")
    with pytest.raises(BadInput):
        plans.renew()
    assert plans.named("api", "{plan}/user:1") == "silver/user:1"


@pytest.mark.parametrize(
    ("text", "field", "rule"),
    [
        (b"", "line 1", "must be the header"),
        (b"subject,plan\n", "line 1", "must be the header"),
        (b"namespace,subject,plan\na,b\n", "line 2", "a namespace, a subject and a plan"),
        (b"namespace,subject,plan\na,,c\n", "line 2", "a namespace, a subject and a plan"),
        (b"namespace,subject,plan\na,b,c d\n", "line 2", "letters, digits"),
        (b"namespace,subject,plan\na,b,c\na,b,d\n", "line 3", "not two"),
        (b'namespace,subject,plan\na,"b,c\n', "plans", "must be CSV"),
        (b"namespace,subject,plan\na,\xff,c\n", "plans", "must be CSV in UTF-8"),
    ],
)
def test_a_file_that_is_none_is_refused(file: Path, text: bytes, field: str, rule: str) -> None:
    file.write_bytes(text)
    with pytest.raises(BadInput) as refused:
        Plans.of_file(file)
    assert field in refused.value.field
    assert rule in refused.value.rule


def test_rows_are_bounded(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_PLANS", 3)
    with pytest.raises(BadInput, match="at most 3 rows"):
        Plans.of_file(file)
    with pytest.raises(BadInput, match="can be read"):
        Plans.of_file(file.parent)
