"""The dashboard asks who looks, with the same keys and users as the API, and shows each only what is theirs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.routing import Route

from lamella.service.access.authenticator import COOKIE
from lamella.service.dashboard.login import onward_of
from support.app_client import AppClient
from support.issuer import FakeIssuer, running_issuer
from support.tenants import ROOT_KEY, Asker, TenantResources, Tenants

_HIDDEN = re.compile(r'name="(csrf|once)" value="([^"]+)"')
_NAMED = re.compile(r"{(\w+)(?::path)?}")


@pytest.fixture(scope="module")
def issuer() -> Iterator[FakeIssuer]:
    """An issuer of tokens."""
    with running_issuer() as issuer:
        yield issuer


@pytest.fixture(scope="module")
def tenants(tmp_path_factory: pytest.TempPathFactory, issuer: FakeIssuer) -> Iterator[Tenants]:
    """A service of two tenants that also knows users of the issuer."""
    settings = {"oidc_issuer": issuer.url, "oidc_client_id": "dashboard", "public_url": "http://testserver"}
    with Tenants(tmp_path_factory.mktemp("tenants"), **settings) as tenants:
        yield tenants


class Visitor:
    """A browser: it keeps cookies, and does not follow redirects by itself."""

    def __init__(self, tenants: Tenants) -> None:
        self.http = AppClient(tenants.app.app, follow_redirects=False)

    def get(self, path: str) -> httpx2.Response:
        """A page."""
        answer: httpx2.Response = self.http.get(path)
        return answer

    def post(self, path: str, fields: dict[str, str], *, with_form_token: bool = True) -> httpx2.Response:
        """A form, with what a page of ours puts into it."""
        hidden = dict(_HIDDEN.findall(self.get("/ui/login").text)) if with_form_token else {}
        answer: httpx2.Response = self.http.post(path, data={**hidden, **fields})
        return answer

    def log_in(self, key: str, onward: str = "/ui") -> httpx2.Response:
        """As a person does."""
        return self.post("/ui/login", {"key": key, "next": onward})


@pytest.fixture
def visitor(tenants: Tenants) -> Visitor:
    """A browser that was never here."""
    return Visitor(tenants)


def pages(tenants: Tenants) -> list[Route]:
    """All routes of the dashboard."""
    app: Any = tenants.app.app
    return [route for route in app.router.routes if isinstance(route, Route) and route.path.startswith("/ui")]


def filled(path: str, resources: TenantResources) -> str:
    """A page's path with the names of a tenant's resources."""
    return _NAMED.sub(lambda found: str(getattr(resources, found[1], "x")), path)


def test_whoever_is_not_known_is_sent_to_log_in(tenants: Tenants, visitor: Visitor) -> None:
    """No page shows anything, and no form does anything, before somebody logged in."""
    resources = tenants.resources("north", "job_id", "index")
    before = tenants.state(resources)
    for route in pages(tenants):
        path = filled(route.path, resources)
        if path.startswith(("/ui/login", "/ui/static", "/ui/logout")) or path in ("/ui/x", "/ui/"):
            continue
        if route.methods is not None and "GET" in route.methods:
            answer = visitor.get(path)
            assert answer.status_code == 303, path
            there = urlsplit(answer.headers["location"])
            assert (there.path, parse_qs(there.query)["next"]) == ("/ui/login", [path])
        else:
            answer = visitor.post(path, {})
            assert answer.status_code == 401, path
        assert not [word for word in resources.words() if word in answer.text.replace(path, "")], path
    assert tenants.state(resources) == before


def test_a_key_logs_in_until_it_is_revoked(tenants: Tenants, visitor: Visitor) -> None:
    """The cookie holds as long as the key does, is kept from scripts and other sites, and is not the key."""
    name, key = tenants.key({"role": "read", "namespace": "north"})
    answer = visitor.log_in(key)
    assert (answer.status_code, answer.headers["location"]) == (303, "/ui")
    cookie = next(each for each in answer.headers.get_list("set-cookie") if each.startswith(COOKIE))
    assert {"HttpOnly", "SameSite=strict", "Path=/ui"} <= {part.strip() for part in cookie.split(";")}
    assert key not in cookie
    assert visitor.get("/ui").status_code == 200
    tenants.root.call("DELETE", f"/v1/keys/{name}")
    assert visitor.get("/ui").status_code == 303


def test_a_key_that_does_not_hold_is_reported_and_nothing_more(visitor: Visitor) -> None:
    """The form comes back, without what was typed."""
    wrong = ROOT_KEY[:-1] + ("A" if ROOT_KEY[-1] != "A" else "B")
    answer = visitor.log_in(wrong)
    assert answer.status_code == 401
    assert "is not valid" in answer.text
    assert wrong not in answer.text
    assert COOKIE not in visitor.http.cookies


def test_a_form_of_another_site_logs_nobody_in(visitor: Visitor) -> None:
    """Else a page could have someone work under a name that is not theirs."""
    assert visitor.post("/ui/login", {"key": ROOT_KEY}, with_form_token=False).status_code == 400
    assert COOKIE not in visitor.http.cookies


def test_a_cookie_that_was_altered_is_no_log_in(tenants: Tenants, visitor: Visitor) -> None:
    """Not one character of it can be another."""
    visitor.log_in(ROOT_KEY)
    good = visitor.http.cookies[COOKIE]
    for position in (0, 10, 30, len(good) // 2, len(good) - 2):
        bad = good[:position] + ("A" if good[position] != "A" else "B") + good[position + 1 :]
        other = Visitor(tenants)
        other.http.cookies.set(COOKIE, bad, path="/ui")
        assert other.get("/ui").status_code == 303, position
    other.http.cookies.set(COOKIE, good, path="/ui")
    assert other.get("/ui").status_code == 200


def test_logging_out_ends_it(visitor: Visitor) -> None:
    """The browser forgets the cookie."""
    visitor.log_in(ROOT_KEY)
    assert visitor.get("/ui").status_code == 200
    assert visitor.post("/ui/logout", {}).headers["location"] == "/ui/login"
    assert visitor.get("/ui").status_code == 303


def test_the_cookie_is_no_way_into_the_api(visitor: Visitor) -> None:
    """Else any page that a browser shows could use the API as whoever is logged in."""
    visitor.log_in(ROOT_KEY)
    assert visitor.get("/v1/namespaces").status_code == 401


def test_pages_show_each_only_what_is_theirs(tenants: Tenants, visitor: Visitor) -> None:
    """An admin of one namespace sees its tables and jobs, and finds nothing at the addresses of others."""
    own, other = (tenants.resources(name, "job_id", "index", "tag") for name in ("south", "north"))
    visitor.log_in(tenants.key({"role": "admin", "namespace": "south"})[1])
    before = tenants.state(other)
    assert own.table in visitor.get("/ui").text
    for path in ("/ui", "/ui/jobs", "/ui/jobs/new", f"/ui/jobs/new?kind=verify&table=south.{own.table}"):
        answer = visitor.get(path)
        assert answer.status_code == 200, path
        assert not [word for word in other.words() if word in answer.text], path
    leaks = []
    for route in pages(tenants):
        if not _NAMED.search(route.path.replace("{rest:path}", "").replace("{name}", "")):
            continue
        path = filled(route.path, other)
        is_get = route.methods is not None and "GET" in route.methods
        answer = visitor.get(path) if is_get else visitor.post(path, {"name": "x", "columns": other.column})
        words = [word for word in other.words() if word in answer.text.replace(path, "") and word not in path]
        if answer.status_code not in (404, 405) or words:
            leaks.append(f"{path}: {answer.status_code} {words}")
    assert not leaks, "\n".join(leaks)
    query = f"kind=verify&table=north.{other.table}&preview=1"
    preview = visitor.get(f"/ui/jobs/new?{query}")
    assert other.column not in preview.text
    assert "there is no namespace" in preview.text
    compared = f"/ui/tables/south/{own.table}/lab/compare?filter=id%3D1&with=snapshot&other_table=north.{other.table}"
    assert other.column not in visitor.get(compared).text
    assert visitor.post("/ui/jobs/new", {"kind": "verify", "table": f"north.{other.table}"}).status_code == 404
    for path in ("/ui/service", "/ui/service/audit", f"/ui/service/audit?table=north.{other.table}"):
        assert visitor.get(path).status_code in (403, 404), path
    assert "/ui/service" not in visitor.get("/ui").text
    assert tenants.state(other) == before


def test_who_may_only_read_changes_nothing(tenants: Tenants, visitor: Visitor) -> None:
    """Every form is refused to one who may only look."""
    own = tenants.resources("south", "job_id", "index", "tag")
    visitor.log_in(tenants.key({"role": "read", "namespace": "south"})[1])
    before = tenants.state(own)
    for route in pages(tenants):
        if route.methods is None or "POST" not in route.methods or route.path in ("/ui/login", "/ui/logout"):
            continue
        fields = {"kind": "verify", "table": f"south.{own.table}", "name": "x", "columns": own.column}
        fields |= {"principal": "user:x", "role": "read", "place": "south.*", "namespace": "south"}
        expected = 404 if "{key}" in route.path else 403  # others' keys are as if they were not there
        assert visitor.post(filled(route.path, own), fields).status_code == expected, route.path
    assert tenants.state(own) == before


@given(st.text(max_size=40))
def test_a_log_in_leads_on_to_pages_of_ours_alone(text: str) -> None:
    """Whatever an address says, nobody is sent to another site."""
    for given_text in (text, f"/ui{text}", f"/ui/{text}", f"//{text}", f"/ui/../{text}", f"/\\{text}"):
        there = onward_of(given_text)
        assert there.startswith("/ui")
        assert urlsplit(there).netloc == ""
        assert "\\" not in there
        assert not there.startswith("/ui/login")


def way(visitor: Visitor, onward: str = "/ui") -> dict[str, str]:
    """What the issuer is sent when somebody starts to log in there."""
    answer = visitor.get(f"/ui/login/start?next={onward}")
    assert answer.status_code == 303
    return {name: values[0] for name, values in parse_qs(urlsplit(answer.headers["location"]).query).items()}


def test_a_user_of_the_issuer_logs_in_there(tenants: Tenants, visitor: Visitor, issuer: FakeIssuer) -> None:
    """There and back, once, by a code that only this browser can use; grants of the user and its groups count."""
    resources = tenants.resources("north")
    tenants.root.call("PUT", "/v1/grants", {"principal": "group:analysts", "role": "read", "namespace": "north"})
    assert "/ui/login/start" in visitor.get("/ui/login").text
    sent = way(visitor, "/ui/jobs")
    assert sent["code_challenge_method"] == "S256"
    assert sent["redirect_uri"] == "http://testserver/ui/login/back"
    claims = {"aud": "dashboard", "nonce": sent["nonce"], "groups": ["analysts", "others"]}
    issuer.code("c1", sent["code_challenge"], **claims)
    back = f"/ui/login/back?state={sent['state']}&code=c1&iss={issuer.url}"
    answer = visitor.get(back)
    assert answer.status_code == 200, answer.text
    assert 'content="0; url=/ui/jobs"' in answer.text
    shown = visitor.get("/ui")
    assert resources.table in shown.text
    assert "user:ann" in shown.text
    assert visitor.get(back).status_code == 400  # the way was gone once


def test_a_way_back_that_did_not_begin_here_is_refused(visitor: Visitor, tenants: Tenants, issuer: FakeIssuer) -> None:
    """Another's state, nonce or issuer, a code that does not fit, or no cookie: nobody is logged in."""
    sent = way(visitor)
    good = {"aud": "dashboard", "nonce": sent["nonce"]}
    issuer.code("other-nonce", sent["code_challenge"], aud="dashboard", nonce="x")
    issuer.code("no-nonce", sent["code_challenge"], aud="dashboard")
    issuer.code("for-another", sent["code_challenge"], **{**good, "aud": "another"})
    issuer.code("other-challenge", "x" * 43, **good)
    issuer.code("good", sent["code_challenge"], **good)
    back = f"/ui/login/back?state={sent['state']}"
    for code in ("other-nonce", "no-nonce", "for-another", "other-challenge", "never-was"):
        assert visitor.get(f"{back}&code={code}").status_code in (303, 401, 503), code
        assert COOKIE not in visitor.http.cookies, code
    assert visitor.get(f"/ui/login/back?state={sent['state']}x&code=good").status_code == 400
    assert visitor.get(f"{back}&code=good&iss=http://another").status_code in (303, 401)
    assert visitor.get(f"{back}&error=access_denied").status_code == 400
    assert Visitor(tenants).get(f"{back}&code=good").status_code == 400
    assert COOKIE not in visitor.http.cookies


def test_a_token_of_the_issuer_is_taken_by_the_api(tenants: Tenants, issuer: FakeIssuer) -> None:
    """With the grants of its user; one for another audience is not."""
    tenants.resources("south")
    tenants.root.call("PUT", "/v1/grants", {"principal": "user:bob", "role": "read", "namespace": "south"})

    def ask(token: str) -> httpx2.Response:
        answer: httpx2.Response = tenants.app.get("/v1/namespaces", headers={"Authorization": f"Bearer {token}"})
        return answer

    assert [each["name"] for each in ask(issuer.token(sub="bob")).json()["namespaces"]] == ["south"]
    assert ask(issuer.token(sub="stranger")).json()["namespaces"] == []
    assert ask(issuer.token(sub="bob", aud="another")).status_code == 401


def test_a_service_that_asks_nobody_has_no_log_in(tmp_path: Path) -> None:
    """Its pages are as they were, and say no name."""
    with Tenants(tmp_path, auth=False, root_key_sha256=None) as tenants:
        visitor = Visitor(tenants)
        visitor.http.headers["host"] = "localhost"
        assert visitor.get("/ui").status_code == 200
        assert "Log out" not in visitor.get("/ui").text
        assert visitor.get("/ui/login").status_code == 404
        visitor.http.headers["host"] = "evil.example.org"
        assert visitor.get("/ui").status_code == 403
        assert visitor.get("/v1/namespaces").status_code == 403


def test_keys_and_grants_are_made_and_taken_on_a_page(tenants: Tenants, visitor: Visitor) -> None:
    """A key's text is shown once; what one is no admin of cannot be given; a mistake is said beside its form."""
    resources = tenants.resources("south")
    visitor.log_in(tenants.key({"role": "admin", "namespace": "south"})[1])
    form = {"name": "shown-once", "role": "read", "place": f"south.{resources.table}", "days": "30"}
    made = visitor.post("/ui/access/keys", form)
    key = re.search(r'id="key">([^<]+)<', made.text)
    assert key is not None
    assert key[1] not in visitor.get("/ui/access").text
    assert (
        Asker(tenants.app, key[1]).call("GET", f"/v1/namespaces/south/tables/{resources.table}")["name"]
        == resources.table
    )
    rotated = re.search(r'id="key">([^<]+)<', visitor.post("/ui/access/keys/shown-once/rotate", {}).text)
    assert rotated is not None
    assert Asker(tenants.app, rotated[1]).call("GET", "/v1/whoami")["principal"] == "key:shown-once"
    for wrong in ({"place": "north.*"}, {"place": "*"}, {"place": "what"}, {"role": "owner"}, {"days": "x"}):
        answer = visitor.post("/ui/access/keys", {**form, "name": "another", **wrong})
        assert 400 <= answer.status_code < 500, wrong
        assert 'id="problem-key"' in answer.text, wrong
    assert visitor.post("/ui/access/keys/shown-once/revoke", {}).status_code == 303
    assert Asker(tenants.app, rotated[1]).send("GET", "/v1/whoami").status_code == 401
    grant = {"principal": "user:eve", "role": "write", "place": "south.*"}
    assert visitor.post("/ui/access/give", grant).status_code == 303
    assert "user:eve" in visitor.get("/ui/access").text
    assert visitor.post("/ui/access/give", {**grant, "place": "north.*"}).status_code in (403, 404)
    assert visitor.post("/ui/access/take", grant).status_code == 303
    assert "user:eve" not in visitor.get("/ui/access").text


def test_pages_offer_only_what_may_be_done(tenants: Tenants, visitor: Visitor) -> None:
    """A reader finds no button that would be refused."""
    resources = tenants.resources("north", "job_id", "index", "tag")
    visitor.log_in(tenants.key({"role": "read", "namespace": "north"})[1])
    below = ("", "/history", "/indexes", "/columns", "/lab")
    for path in (
        *(f"/ui/tables/north/{resources.table}{each}" for each in below),
        f"/ui/jobs/{resources.job_id}",
        "/ui/jobs",
    ):
        answer = visitor.get(path)
        assert answer.status_code == 200, path
        forms = re.findall(r'<form[^>]*method="post"[^>]*>(.*?)</form>', answer.text, re.DOTALL)
        assert not [form for form in forms if "<button" in form and "Log out" not in form], path
        assert "formaction" not in answer.text, path


def test_the_history_says_who_committed_to_those_who_may_audit(tenants: Tenants) -> None:
    """Others see the same snapshots without names; the table's own page has its grants and its trail."""
    resources = tenants.resources("north", "job_id", "index")
    table = f"/ui/tables/{resources.namespace}/{resources.table}"
    readers, admins = Visitor(tenants), Visitor(tenants)
    reader_name, reader_key = tenants.key({"role": "read", "namespace": resources.namespace})
    readers.log_in(reader_key)
    _, admin_key = tenants.key({"role": "admin", "namespace": resources.namespace})
    admins.log_in(admin_key)
    for address in (table, f"{table}/history"):
        assert re.search(r"</time>\s+by root\s", admins.get(address).text)
        assert not re.search(r"</time>\s+by\s", readers.get(address).text)
    assert readers.get(f"{table}/access").status_code == 403
    shown = admins.get(f"{table}/access").text
    assert "create_table" in shown
    given = admins.post(f"{table}/access", {"principal": f"key:{reader_name}", "role": "write"})
    assert (given.status_code, given.headers["location"]) == (303, f"{table}/access?done=granted")
    assert f"key:{reader_name}" in admins.get(f"{table}/access").text
    refused = admins.post(f"{table}/access", {"principal": "nobody", "role": "write"})
    assert refused.status_code == 400
    assert 'value="nobody"' in refused.text


def test_a_form_that_is_sent_after_the_session_ended_keeps_its_input(tenants: Tenants, visitor: Visitor) -> None:
    """It is on the page that says so, and can be sent again after a log-in, with the same effect and once."""
    resources = tenants.resources("north")
    address = f"/ui/tables/north/{resources.table}/history/tag"
    visitor.log_in(ROOT_KEY)
    visitor.post("/ui/logout", {})
    fields = {**dict(_HIDDEN.findall(visitor.get("/ui/login").text)), "name": "kept", "until": "<b>2030"}
    answer = visitor.post(address, fields, with_form_token=False)
    assert answer.status_code == 401
    assert f'action="{address}"' in answer.text
    assert "&lt;b&gt;2030" in answer.text
    assert "<b>2030" not in answer.text
    foreign = visitor.post(address, {**fields, "csrf": "0" * 64}, with_form_token=False)
    assert "2030" not in foreign.text
    again = visitor.post(address, {**fields, "until": ""}, with_form_token=False)
    form = again.text[again.text.index(f'action="{address}"') :]
    hidden = dict(re.findall(r'name="(\w+)" value="([^"]*)"', form))
    visitor.log_in(ROOT_KEY)
    for _ in range(2):
        assert visitor.post(address, hidden, with_form_token=False).status_code == 303
    tags = tenants.root.call("GET", f"/v1/namespaces/north/tables/{resources.table}/tags")["tags"]
    assert [tag["name"] for tag in tags] == ["kept"]


def test_json_and_metrics_are_read_with_the_session(tenants: Tenants, visitor: Visitor) -> None:
    """The links of pages lead to them, although the cookie is no way into the API."""
    resources = tenants.resources("north", "job_id")
    visitor.log_in(ROOT_KEY)
    assert f"/ui/jobs/{resources.job_id}/json" in visitor.get(f"/ui/jobs/{resources.job_id}").text
    assert visitor.get(f"/ui/jobs/{resources.job_id}/json").json()["job_id"] == resources.job_id
    assert "lamella_build_info" in visitor.get("/ui/service/metrics").text
    reader = Visitor(tenants)
    reader.log_in(tenants.key({"role": "read", "namespace": "south"})[1])
    assert reader.get(f"/ui/jobs/{resources.job_id}/json").status_code == 404
    assert reader.get("/ui/service/metrics").status_code == 403
