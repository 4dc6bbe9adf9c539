"""What takes something away asks first, also without a script; and who is let in is said as it is."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from lamella.service.app import create_app
from lamella.service.config.settings import Settings
from lamella.service.dashboard.status import access_facts
from support.app_client import AppClient
from support.tenants import ROOT_KEY, Tenants

_HIDDEN = re.compile(r'<input type="hidden" name="([^"]+)" value="([^"]*)">')
_FORM = re.compile(r'<form[^>]*method="post"[^>]*>.*?</form>', re.DOTALL)
#: What buttons say that do their work at once, and take nothing away.
HARMLESS = {
    "Log out",
    "Log in",
    "Create the key",
    "Grant the role",
    "Set the tag",
    "Set the key",
    "Create the index",
    "Restore the index",
    "Start the job",
    "Retry",
    "Now",
    "Start now",
    "Keep this table in shape",
    "Save the policy",
    "Save the schedule",
    "Compact every night at 2:00 (UTC)",
    "Pause",
    "Resume",
    "Create the table",
    "Create the namespace",
    "Rename the table",
    "Register the files",
    "Restore",
}


@pytest.fixture(scope="module")
def tenants(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tenants]:
    """A service with keys and grants."""
    with Tenants(tmp_path_factory.mktemp("tenants")) as found:
        yield found


@pytest.fixture
def admin(tenants: Tenants) -> AppClient:
    """A browser, without scripts, of one who may do everything."""
    found = AppClient(tenants.app.app, follow_redirects=False)
    hidden = dict(_HIDDEN.findall(found.get("/ui/login").text))
    assert found.post("/ui/login", data={**hidden, "key": ROOT_KEY, "next": "/ui"}).status_code in (200, 303)
    return found


def confirmation_of(browser: AppClient, path: str) -> tuple[str, dict[str, str]]:
    """The page that asks, and what its form sends."""
    page = browser.get(path)
    assert page.status_code == 200, page.text
    (form,) = [each for each in _FORM.findall(page.text) if "/logout" not in each]
    assert 'class="danger"' in form
    assert "Go back" in form
    return page.text, dict(_HIDDEN.findall(form))


def confirmed(browser: AppClient, path: str, fields: dict[str, str]) -> httpx2.Response:
    """The answer once the button is pressed."""
    answer: httpx2.Response = browser.post(path.partition("?")[0], data=fields)
    return answer


def test_no_page_takes_anything_away_by_one_click(tenants: Tenants, admin: AppClient) -> None:
    """The buttons of listings and of details do nothing that cannot be done again; the others are behind a question."""
    resources = tenants.resources("north", "job_id", "index", "tag")
    name, _ = tenants.key({"role": "read", "namespace": "north"})
    table = f"/ui/tables/north/{resources.table}"
    seen = set()
    for path in (
        "/ui",
        "/ui/access",
        "/ui/jobs",
        "/ui/service",
        f"/ui/jobs/{resources.job_id}",
        table,
        f"{table}/history",
        f"{table}/rows",
        f"{table}/advice",
        f"{table}/indexes",
        f"{table}/upkeep",
        f"{table}/upkeep/schedule?kind=vacuum",
        f"{table}/access",
        f"{table}/rename",
        f"{table}/register",
        "/ui/new",
        "/ui/namespaces/north",
    ):
        page = admin.get(path)
        assert page.status_code == 200, path
        for form in _FORM.findall(page.text):
            for button in re.findall(r"<button[^>]*>(.*?)</button>", form, re.DOTALL):
                text = re.sub(r"<span.*?</span>", "", button).strip()
                assert text in HARMLESS, (path, text)
                seen.add(text)
        for text in re.findall(r'<button[^>]*form="act"[^>]*>([^<]*)', page.text):
            assert text.strip() in HARMLESS, (path, text)
        assert 'class="danger' not in page.text
    assert {"Log out", "Create the key", "Grant the role", "Set the tag"} <= seen
    assert name in admin.get("/ui/access").text


def test_a_key_is_rotated_and_revoked_after_a_question_that_names_it(tenants: Tenants, admin: AppClient) -> None:
    """Asking changes nothing; a form without its token changes nothing; the button does."""
    name, text = tenants.key({"role": "read", "namespace": "north"})
    for act, done in (("rotate", 200), ("revoke", 303)):
        path = f"/ui/access/keys/{name}/{act}"
        page, fields = confirmation_of(admin, path)
        assert f"the key {name}" in page
        assert "read north" in page
        assert admin.get("/v1/namespaces", headers={"Authorization": f"Bearer {text}"}).status_code == 200
        assert confirmed(admin, path, {**fields, "csrf": "0" * 64}).status_code == 400
        assert confirmed(admin, path, fields).status_code == done
    assert admin.get(f"/ui/access/keys/{name}/revoke").status_code == 404


def test_a_role_is_taken_after_a_question_that_names_all_of_it(admin: AppClient) -> None:
    """Who, which role, and where; a role that is not there is not asked about."""
    hidden = dict(_HIDDEN.findall(admin.get("/ui/access").text))
    given = {"principal": "user:eve", "role": "write", "place": "north.*"}
    assert admin.post("/ui/access/give", data={**hidden, **given}).status_code == 303
    path = "/ui/access/take?principal=user%3Aeve&role=write&place=north.*"
    page, fields = confirmation_of(admin, path)
    assert "Remove the role write on north.* from user:eve?" in page
    assert given.items() <= fields.items()
    assert admin.get(path.replace("write", "admin")).status_code == 404
    assert "user:eve" in admin.get("/ui/access").text
    assert confirmed(admin, path, fields).status_code == 303
    assert "user:eve" not in admin.get("/ui/access").text


def test_tables_policies_and_schedules_go_after_a_question(tenants: Tenants, admin: AppClient) -> None:
    """Each names what is affected."""
    resources = tenants.resources("north", "schedule")
    table = f"/ui/tables/north/{resources.table}"
    tenants.root.call("PUT", f"/v1/namespaces/north/tables/{resources.table}/policy", {"verify": {"every_s": 60}})
    for path, text in (
        (f"{table}/upkeep/schedule/remove?name={resources.schedule}", f"the schedule {resources.schedule}"),
        (f"{table}/upkeep/policy/remove", "verify"),
        (f"{table}/drop", resources.table),
    ):
        page, fields = confirmation_of(admin, path)
        assert text in page
        assert confirmed(admin, path, {**fields, "csrf": "0" * 64}).status_code == 400
        assert confirmed(admin, path, fields).status_code == 303
        assert admin.get(path).status_code == 404


def test_a_tag_is_removed_and_a_job_cancelled_after_a_question(tenants: Tenants, admin: AppClient) -> None:
    """As before, with what is affected on the page."""
    resources = tenants.resources("north", "job_id", "tag")
    path = f"/ui/tables/north/{resources.table}/history/untag?name={resources.tag}"
    page, fields = confirmation_of(admin, path)
    assert f"Remove the tag {resources.tag} of north.{resources.table}?" in page
    assert admin.get(path).status_code == 200
    assert confirmed(admin, path, fields).status_code == 303
    assert admin.get(path).status_code == 404
    path = f"/ui/jobs/{resources.job_id}/cancel"
    page, fields = confirmation_of(admin, path)
    assert f"of north.{resources.table}?" in page
    assert str(resources.job_id) in page
    assert confirmed(admin, path, fields).status_code == 303
    assert admin.get(path).headers["location"] == f"/ui/jobs/{resources.job_id}"


def test_who_may_not_do_it_gets_no_question(tenants: Tenants) -> None:
    """A reader gets no question whose answer would be refused."""
    resources = tenants.resources("north", "job_id", "tag")
    key, text = tenants.key({"role": "read", "namespace": "north"})
    reader = AppClient(tenants.app.app, follow_redirects=False)
    hidden = dict(_HIDDEN.findall(reader.get("/ui/login").text))
    reader.post("/ui/login", data={**hidden, "key": text, "next": "/ui"})
    for path in (
        f"/ui/tables/north/{resources.table}/history/untag?name={resources.tag}",
        f"/ui/jobs/{resources.job_id}/cancel",
        f"/ui/access/take?principal=key%3A{key}&role=read&place=north.*",
    ):
        assert reader.get(path).status_code == 403, path


@pytest.mark.parametrize(
    ("settings", "says", "warns"),
    [
        ({}, "every program on this machine may read and change every table", None),
        (
            {"host": "192.0.2.1", "insecure": True},
            "everyone who reaches the address may read and change every table",
            "insecure",
        ),
        ({"auth": True}, "Requests are authenticated (auth): each needs an API key, and may do", None),
        ({"auth": True, "oidc_issuer": "https://id.example"}, "an API key or a token of https://id.example", None),
        ({"auth": True, "root_key_sha256": "0" * 64}, "There is a root key", None),
        ({"auth": True, "host": "192.0.2.1"}, "Requests are authenticated", "without encryption"),
        ({"auth": True, "trusted_proxies": "*"}, "Requests are authenticated", "trusted_proxies is *"),
    ],
)
def test_the_service_page_says_who_is_let_in(
    tmp_path: Path, settings: dict[str, Any], says: str, warns: str | None
) -> None:
    """What is true with the settings in force, and no more."""
    shown = access_facts(Settings(warehouse=str(tmp_path), **settings))
    assert says in " ".join(shown.says)
    assert ("are not authenticated" in " ".join(shown.says)) == (not settings.get("auth"))
    assert (warns is None and shown.warnings == ()) or (warns is not None and warns in " ".join(shown.warnings))


def test_the_page_of_the_service_has_it(admin: AppClient, tmp_path: Path) -> None:
    """With keys, and without."""
    page = admin.get("/ui/service").text
    assert "Requests are authenticated" in page
    assert "not authenticated" not in page
    with AppClient(create_app(Settings(warehouse=str(tmp_path))), client=("127.0.0.1", 50_000)) as open_to_all:
        assert "Requests are not authenticated (auth is off): every program" in open_to_all.get("/ui/service").text
