"""``srtm topic publishers``: what is asked, and how many rows are printed."""

from __future__ import annotations

import json

import pytest

from srtm.cli import main
from tests.support.played_distributor import VIEW, Distributor

PATH = "/v1/topics/roads/publishers"


def columns(count: int) -> dict[str, list[object]]:
    """dev-0, dev-1, ...; the even ones are of group g."""
    numbers = range(count)
    return {
        "ids": [f"dev-{n}" for n in numbers],
        "brokers": ["broker-1" for _ in numbers],
        "groups": ["" if n % 2 else "g" for n in numbers],
        "rates": [2.5 for _ in numbers],
        "processes": ["poisson" for _ in numbers],
        "batches": [1 for _ in numbers],
        "pinned": [n == 1 for n in numbers],
    }


def test_a_change_is_one_request_and_only_what_was_added_is_shown(
    distributor: Distributor, capsys: pytest.CaptureFixture[str]
) -> None:
    of_all = columns(5)
    of_all["ids"][3] = "a=b"
    distributor.answers["PATCH", PATH] = (200, VIEW)
    distributor.answers["GET", PATH] = (200, of_all)
    assert main(["topic", "publishers", "roads", "--add", "a=b=2.5", "--remove", "c"]) == 0
    assert distributor.bodies == [{"add": [{"id": "a=b", "rate": 2.5}], "remove": ["c"]}]
    shown = capsys.readouterr().out
    assert "roads: 1 publisher added, 1 removed" in shown
    assert "a=b" in shown
    assert "dev-" not in shown


def test_after_a_removal_nobody_is_listed(distributor: Distributor, capsys: pytest.CaptureFixture[str]) -> None:
    distributor.answers["PATCH", PATH] = (200, VIEW)
    assert main(["topic", "publishers", "roads", "--remove", "c"]) == 0
    assert capsys.readouterr().out == "roads: 0 publishers added, 1 removed\n"
    assert distributor.asked == [("PATCH", PATH)]


@pytest.mark.parametrize(
    ("options", "ids"),
    [([], 4), (["--group", "g"], 2), (["--id", "dev-1", "--id", "dev-2"], 2), (["--group", "g", "--id", "dev-1"], 0)],
)
def test_the_list_is_filtered(
    distributor: Distributor, capsys: pytest.CaptureFixture[str], options: list[str], ids: int
) -> None:
    distributor.answers["GET", PATH] = (200, columns(4))
    assert main(["topic", "publishers", "roads", *options, "--broker", "broker-1", "--json", "-"]) == 0
    found = json.loads(capsys.readouterr().out)["result"]
    assert len(found) == ids
    assert distributor.queries["GET", PATH] == {"broker": "broker-1"}


def test_json_has_an_object_for_each_and_null_where_nothing_is_known(
    distributor: Distributor, capsys: pytest.CaptureFixture[str]
) -> None:
    nowhere = {**columns(2), "brokers": ["broker-1", None]}
    distributor.answers["GET", PATH] = (200, nowhere)
    assert main(["topic", "publishers", "roads", "--json", "-"]) == 0
    both = {"rate": 2.5, "process": "poisson", "batch": 1}
    assert json.loads(capsys.readouterr().out)["result"] == [
        {"id": "dev-0", "group": "g", "broker": "broker-1", "pinned": False, **both},
        {"id": "dev-1", "group": None, "broker": None, "pinned": True, **both},
    ]


@pytest.mark.parametrize(("ids", "heads"), [(["dev-0"], 4), (["dev-0", "dev-1"], 5)], ids=["none pinned", "one pinned"])
def test_each_column_has_a_heading_and_says_something(
    distributor: Distributor, capsys: pytest.CaptureFixture[str], ids: list[str], heads: int
) -> None:
    distributor.answers["GET", PATH] = (200, columns(2))
    assert main(["topic", "publishers", "roads", *(word for each in ids for word in ("--id", each))]) == 0
    shown = capsys.readouterr().out
    assert [*map(str.strip, shown.splitlines()[1].strip("|").split("|"))] == [
        "publisher",
        "group",
        "broker",
        "msg/s",
        "note",
    ][:heads]
    assert ("pinned" in shown) == (heads == 5)


def test_many_publishers_are_printed_as_lines(distributor: Distributor, capsys: pytest.CaptureFixture[str]) -> None:
    distributor.answers["GET", PATH] = (200, columns(20_000))
    assert main(["topic", "publishers", "roads"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert (len(lines), lines[2]) == (20_000, "dev-2\tg\tbroker-1\t2.5")


def test_a_list_and_a_change_do_not_go_together(distributor: Distributor, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["topic", "publishers", "roads", "--add", "a=1", "--group", "g"]) == 2
    assert "either changed (--add, --remove) or listed" in capsys.readouterr().err
    assert distributor.asked == []
