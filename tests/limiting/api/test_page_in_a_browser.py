"""The page of the limit service in a real Chromium: contracts are edited, looked at, and subjects banned there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser, expect

from srtm.cluster.token_files import issue
from tests.support.chromium import MARKS, PATIENCE_MS, PHONE, browser, page, served

__all__ = ["browser"]  # a fixture

POLICIES = [
    {"name": "burst", "rate": 0.001, "burst": 3},
    {"name": "daily", "kind": "window", "quota": 50, "window": "1d"},
]
HERE = "#/contracts/api/user%3A*"

pytestmark = MARKS


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with served(["limit", "serve"]) as found:
        yield found


@pytest.fixture
def contracts(url: str) -> str:
    """The URL of the interface to contracts; there is one, of which a subject has used two of three tokens."""
    httpx.delete(f"{url}/limit/v1/contracts/api/user:*")
    httpx.put(f"{url}/limit/v1/contracts/api/user:*", json={"policies": POLICIES}).raise_for_status()
    check = {"namespace": "api", "subject": "user:1", "cost": 2}
    assert httpx.post(f"{url}/limit/v1/check", json=check).json()["allowed"]
    return f"{url}/limit/v1/contracts"


@pytest.mark.usefixtures("contracts")
def test_the_list_shows_contracts_and_complains_of_nothing(browser: Browser, url: str) -> None:
    with page(browser) as (it, said):
        it.goto(url)
        row = it.get_by_role("row").filter(has_text="user:*")
        expect(row).to_contain_text("burst: 3, 0.001/s; daily: 50 in 1d", timeout=PATIENCE_MS)
        expect(it.get_by_role("status")).to_have_text("live")
        row.get_by_role("link", name="user:*").click()
        expect(it.get_by_role("heading", name="Contract user:* of api")).to_be_visible()
        assert said == []


def test_a_form_and_its_toml_say_the_same_and_what_is_put_is_in_force(
    browser: Browser, url: str, contracts: str
) -> None:
    with page(browser) as (it, said):
        it.goto(f"{url}/{HERE}")
        text = it.get_by_label("The contract as TOML")
        it.get_by_label("Tokens at most").fill("40")
        it.get_by_label("Tokens a second").fill("20")
        assert '{ name = "burst", kind = "bucket", rate = 20, burst = 40' in text.input_value()
        expect(it.get_by_text("A token comes back each 50 ms; an empty bucket is full after 2 s.")).to_be_visible()
        it.get_by_label("Shadow: refuses nobody").select_option("true")
        it.get_by_label("Held on several nodes").select_option("local")
        assert 'mode = "local"\n' in text.input_value()
        it.get_by_role("button", name="+ new policy").click()
        expect(it.get_by_role("group", name="Policy 3")).to_be_visible()
        assert 'name = "policy-3"' in text.input_value()
        text.fill(text.input_value().replace('"policy-3"', '"third"'))
        text.blur()
        expect(it.get_by_role("group", name="Policy 3").get_by_label("Name")).to_have_value("third")
        it.get_by_role("button", name="Put in force").click()
        expect(it.get_by_text("In force. Subjects keep what they have used.")).to_be_visible(timeout=PATIENCE_MS)
        put = httpx.get(f"{contracts}/api/user:*").json()
        assert [policy["name"] for policy in put["policies"]] == ["burst", "daily", "third"]
        assert (put["policies"][0]["burst"], put["policies"][0]["rate"]) == (40, 20)
        assert (put["shadow"], put["mode"]) == (True, "local")
        assert said == []


@pytest.mark.usefixtures("contracts")
def test_toml_that_is_wrong_is_refused_in_the_services_words_and_leaves_the_form(browser: Browser, url: str) -> None:
    with page(browser) as (it, _):
        it.goto(f"{url}/{HERE}")
        text = it.get_by_label("The contract as TOML")
        expect(it.get_by_label("Tokens at most")).to_have_value("3", timeout=PATIENCE_MS)
        text.fill(text.input_value().replace("burst = 3", "burst = 0"))
        text.blur()
        expect(it.get_by_role("alert")).to_contain_text("contracts[0].policies[0].burst", timeout=PATIENCE_MS)
        expect(it.get_by_label("Tokens at most")).to_have_value("3")


def test_a_text_is_read_before_it_is_put_and_a_wrong_one_is_not_put(browser: Browser, url: str, contracts: str) -> None:
    put_at_once = """() => {
      document.querySelector("textarea").dispatchEvent(new Event("change"));
      document.querySelector(".editor button[type=submit]").click();
    }"""
    with page(browser) as (it, _):
        it.goto(f"{url}/{HERE}")
        text = it.get_by_label("The contract as TOML")
        expect(it.get_by_label("Tokens at most")).to_have_value("3", timeout=PATIENCE_MS)
        text.fill(text.input_value().replace("burst = 3", "burst = 5"))
        it.evaluate(put_at_once)
        expect(it.get_by_text("In force. Subjects keep what they have used.")).to_be_visible(timeout=PATIENCE_MS)
        assert httpx.get(f"{contracts}/api/user:*").json()["policies"][0]["burst"] == 5
        text.fill(text.input_value().replace("burst = 5", "burst = 0"))
        it.evaluate(put_at_once)
        expect(it.get_by_role("alert").first).to_contain_text("contracts[0].policies[0].burst", timeout=PATIENCE_MS)
        assert httpx.get(f"{contracts}/api/user:*").json()["policies"][0]["burst"] == 5
        it.get_by_label("Tokens at most").fill("7")
        it.get_by_role("button", name="Put in force").click()
        expect(it.get_by_text("In force. Subjects keep what they have used.")).to_be_visible(timeout=PATIENCE_MS)
        assert httpx.get(f"{contracts}/api/user:*").json()["policies"][0]["burst"] == 7


def test_what_somebody_else_changed_meanwhile_is_not_overwritten(browser: Browser, url: str, contracts: str) -> None:
    with page(browser) as (it, _):
        it.goto(f"{url}/{HERE}")
        it.get_by_label("Tokens at most").fill("40")
        httpx.put(f"{contracts}/api/user:*", json={"policies": POLICIES[:1]}).raise_for_status()
        it.get_by_role("button", name="Put in force").click()
        expect(it.get_by_role("alert")).to_contain_text("Somebody else has changed", timeout=PATIENCE_MS)
        assert len(httpx.get(f"{contracts}/api/user:*").json()["policies"]) == 1


@pytest.mark.usefixtures("contracts")
def test_a_subject_shows_what_remains_is_banned_and_reset(browser: Browser, url: str) -> None:
    refused = [{"namespace": "api", "subject": "user:1", "cost": 4}] * 1_000  # the heaviest are found by a sample
    httpx.post(f"{url}/limit/v1/check-many", json={"checks": refused}).raise_for_status()
    with page(browser) as (it, said):
        it.goto(f"{url}/{HERE}")
        row = it.get_by_role("row").filter(has_text="user:1")
        expect(row).to_contain_text("burst: 1", timeout=PATIENCE_MS)
        row.get_by_role("button", name="Ban user:1").click()
        expect(it.get_by_text("user:1 is banned")).to_be_visible(timeout=PATIENCE_MS)
        check = {"namespace": "api", "subject": "user:1"}
        assert not httpx.post(f"{url}/limit/v1/check", json=check).json()["allowed"]
        banned = it.get_by_role("table", name="Banned subjects")
        banned.get_by_role("button", name="Reset user:1").click()
        expect(it.get_by_text("user:1 has used nothing now.")).to_be_visible(timeout=PATIENCE_MS)
        expect(banned).to_have_count(0)
        assert httpx.post(f"{url}/limit/v1/check", json=check).json()["allowed"]
        it.get_by_label("A subject").fill("user:2")
        it.get_by_role("button", name="Look at it").click()
        expect(it.get_by_role("table", name="The subject")).to_contain_text("burst: 3", timeout=PATIENCE_MS)
        assert said == []


def test_a_contract_is_made_and_removed_there(browser: Browser, url: str, contracts: str) -> None:
    with page(browser) as (it, said):
        it.goto(f"{url}/#/contracts/new")
        it.get_by_label("Namespace").fill("jobs")
        it.get_by_label("Subjects, * at the end").fill("team/*")
        it.get_by_label("Kind").select_option("concurrency")
        it.get_by_role("button", name="Put in force").click()
        expect(it.get_by_role("heading", name="Contract team/* of jobs")).to_be_visible(timeout=PATIENCE_MS)
        made = httpx.get(f"{contracts}/jobs/team/*").json()
        assert (made["policies"][0]["kind"], made["policies"][0]["quota"]) == ("concurrency", 10)
        it.get_by_text("Remove this contract").click()
        it.get_by_label("Type team/* to confirm").fill("team/*")
        it.get_by_role("button", name="Remove", exact=True).click()
        expect(it.get_by_role("heading", name="Contracts")).to_be_visible(timeout=PATIENCE_MS)
        assert httpx.get(f"{contracts}/jobs/team/*").status_code == 404
        # A look at the contract may be under way when it is removed.
        assert [one for one in said if "404" not in one] == []


@pytest.mark.usefixtures("contracts")
@pytest.mark.parametrize("where", ["#/", "#/contracts/new", HERE])
def test_on_a_phone_nothing_sticks_out(browser: Browser, url: str, where: str) -> None:
    with page(browser, viewport=PHONE, color_scheme="dark") as (it, said):
        it.goto(f"{url}/{where}")
        expect(it.get_by_role("heading", level=1)).to_be_visible()
        expect(it.get_by_role("status").first).to_have_text("live", timeout=PATIENCE_MS)
        assert it.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
        assert said == []


def test_with_tokens_it_asks_for_one_of_an_operator(browser: Browser, tmp_path: Path) -> None:
    issued = issue(tmp_path, [])
    with served(["limit", "serve", "--tokens", str(issued.list_file)]) as closed, page(browser) as (it, _):
        it.goto(closed)
        it.get_by_label("Token").fill("wrong")
        it.get_by_role("button", name="Sign in").click()
        expect(it.get_by_role("alert")).to_contain_text("must be the token of an operator", timeout=PATIENCE_MS)
        it.get_by_label("Token").fill(issued.operator)
        it.get_by_role("button", name="Sign in").click()
        expect(it.get_by_role("heading", name="Contracts")).to_be_visible(timeout=PATIENCE_MS)
        expect(it.get_by_text("no contract is in force")).to_be_visible()
