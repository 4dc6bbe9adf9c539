"""What a hostile name, filter, page or form can do on the dashboard: be shown as text, or be refused."""

from __future__ import annotations

import re
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from http.cookiejar import CookieJar
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from playwright.sync_api import Dialog, Page, expect
from starlette.routing import Route

from fixtures_server import ServerProcess
from lamella.client import Lamella
from lamella.service.app import create_app
from lamella.service.config.settings import Settings
from lamella.service.dashboard.forms import COOKIE, KEY, TOKEN
from lamella.service.dashboard.pages import CONTENT_SECURITY_POLICY
from support.dashboard_tables import EVENTS, NAMESPACE

MARKUP = '"><img src=x onerror="alert(1)"><script>alert(2)</script>{{7*7}}'
COLUMN = "<b onmouseover=alert(3)>c</b>"
HOSTILE = f"{NAMESPACE}.hostile"
PAGES = ("", "/map", "/map?zoom=0", "/map?zoom=0.0", "/columns", "/indexes", "/history", "/lab", "/rows", "/advice")


@pytest.fixture(scope="module")
def hostile(shared_server: ServerProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A table with markup wherever users can write: a column, a property, a file, a filter that is recorded, a job."""
    folder: Path = tmp_path_factory.mktemp("hostile")
    file = folder / "<i>file<i>.parquet"
    pq.write_table(pa.table({COLUMN: ["<u>low</u>", "<u>high</u>"], "n": [1, 2]}), file)
    with Lamella(shared_server.url) as lake:
        lake.create_table(HOSTILE, schema_from=f"file://{file}", cluster_key=["n"], properties={MARKUP: MARKUP})
        table = lake.table(HOSTILE)
        table.register([f"file://{file}"])
        table.prune(f"`{COLUMN}` = '{MARKUP}'")
        job = lake.jobs.submit("compact", HOSTILE, {"where": f"`{COLUMN}` = '{MARKUP}'"}, delay_s=86_000)
        yield job.job_id
        lake.jobs.cancel(job.job_id)
        lake.drop_table(HOSTILE)


@pytest.fixture
def harmless(page: Page) -> Iterator[Page]:
    """A page on which no script of a stranger may run."""
    dialogs: list[str] = []

    def shown(dialog: Dialog) -> None:
        dialogs.append(dialog.message)
        dialog.dismiss()

    page.on("dialog", shown)
    yield page
    assert dialogs == []


def check_text_only(page: Page) -> None:
    """Nothing of the markup became an element."""
    assert page.locator("img[src=x], main script, main b[onmouseover], main u, main i:not([class])").count() == 0
    assert "49" not in page.title()


@pytest.mark.browser
@pytest.mark.usefixtures("hostile")
@pytest.mark.parametrize("path", PAGES)
@pytest.mark.few(3)
def test_markup_in_names_is_text(harmless: Page, path: str) -> None:
    """A column, a property, a file name and a bound with markup are shown as they are written, and run nothing."""
    harmless.goto(f"/ui/tables/shop/hostile{path}")
    expect(harmless.get_by_role("heading", level=1)).to_have_text("hostile")
    check_text_only(harmless)


@pytest.mark.browser
@pytest.mark.usefixtures("hostile")
def test_names_with_markup_are_shown_as_written(harmless: Page) -> None:
    """The column's name is there to be read, character by character."""
    harmless.goto("/ui/tables/shop/hostile/columns")
    expect(harmless.get_by_role("row").filter(has_text=COLUMN)).to_contain_text("'<u>high</u>'")


@pytest.mark.browser
@pytest.mark.parametrize(
    "path",
    [
        "/ui/tables/shop/events/map?filter={}",
        "/ui/tables/shop/events/lab?filter={}",
        "/ui/tables/shop/events/rows?filter={}&columns={}",
        "/ui/tables/shop/events/lab/compare?filter={}",
        "/ui/tables/shop/events/history/difference?since={}",
        "/ui/tables/shop/events?at={}",
        "/ui/tables/shop/{}",
        "/ui/tables/{}/x/map",
        "/ui?name={}&namespace={}",
        "/ui?done={}",
        "/ui/jobs?table={}&kind={}",
        "/ui/jobs/new?kind=compact&table=shop.events&where={}",
        "/ui/jobs/{}",
    ],
)
@pytest.mark.few(4)
def test_markup_in_an_address_is_text(harmless: Page, path: str) -> None:
    """Whatever an address says, the page has it as text or not at all."""
    harmless.goto(path.replace("{}", urllib.parse.quote(MARKUP, safe="")))
    check_text_only(harmless)


@pytest.mark.browser
def test_markup_in_a_job_is_text(harmless: Page, hostile: str) -> None:
    """The arguments of a job are shown as text, in the list and on its own page."""
    for path in ("/ui/jobs", f"/ui/jobs/{hostile}"):
        harmless.goto(path)
        check_text_only(harmless)
    expect(harmless.locator("main")).to_contain_text("<img src=x")


class Browser:
    """Just enough of one to post forms: it keeps cookies and follows nothing."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.jar = CookieJar()

        class Stay(urllib.request.HTTPRedirectHandler):
            def redirect_request(self, *_args: object) -> None:
                return None

        self._opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(self.jar), Stay)

    def get(self, path: str, **headers: str) -> tuple[int, dict[str, str], str]:
        """Status, headers in lower case, text."""
        return self._open(urllib.request.Request(self.url + path, headers=headers))  # noqa: S310  # our own URL

    def token(self) -> str:
        """The token of this browser's forms."""
        found = re.search(rf'name="{TOKEN}" value="(\w+)"', self.get("/ui/tables/shop/events")[2])
        assert found is not None
        return found[1]

    def post(self, path: str, fields: dict[str, str], **headers: str) -> int:
        """The status of a form's answer."""
        data = urllib.parse.urlencode(fields).encode()
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        request = urllib.request.Request(self.url + path, data=data, headers=names)  # noqa: S310  # our own URL
        return self._open(request)[0]

    def _open(self, request: urllib.request.Request) -> tuple[int, dict[str, str], str]:
        try:
            with self._opener.open(request) as answer:
                return answer.status, {k.lower(): v for k, v in answer.headers.items()}, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, {k.lower(): v for k, v in error.headers.items()}, error.read().decode()


def posted_paths(tmp_path: Path) -> list[str]:
    """The paths of the dashboard that take a form, with names that there are."""
    app = create_app(Settings(warehouse=str(tmp_path)))
    routes = [route for route in app.routes if isinstance(route, Route) and route.path.startswith("/ui")]
    found = [route.path for route in routes if "POST" in (route.methods or ())]
    assert len(found) >= 8
    names = {
        "namespace": "shop",
        "table": "events",
        "index": "by_part",
        "job_id": "01a20000-0000-7000-8000-000000000000",
    }
    return [path.format(**names) for path in found]


def test_every_form_without_its_token_is_refused(server_url: str, lake: Lamella, tmp_path: Path) -> None:
    """No path that changes something does so without a token, with a made-up one, or with that of another browser."""
    before = (lake.table(EVENTS).info(), list(lake.jobs.list()))
    browser, other = Browser(server_url), Browser(server_url)
    browser.token()
    for path in posted_paths(tmp_path):
        fields = {"name": "x", "to": "x", "columns": "kind", "kind": "compact", "table": EVENTS}
        assert browser.post(path, fields) == 400
        assert browser.post(path, {**fields, TOKEN: "0" * 64}) == 400
        assert browser.post(path, {**fields, TOKEN: other.token()}) == 400
        assert Browser(server_url).post(path, {**fields, TOKEN: browser.token()}) == 400
    assert (lake.table(EVENTS).info(), list(lake.jobs.list())) == before


def test_forms_of_other_origins_are_refused_even_with_a_token(server_url: str, lake: Lamella) -> None:
    """What the browser says of the origin decides too; the same form of our own page is taken."""
    browser = Browser(server_url)
    path, fields = "/ui/tables/shop/events/history/tag", {"name": "forged", TOKEN: browser.token(), KEY: "k1"}
    assert browser.post(path, fields, Sec_Fetch_Site="cross-site") == 400
    assert browser.post(path, fields, Sec_Fetch_Site="same-site") == 400
    assert browser.post(path, fields, Origin="http://127.0.0.1:1") == 400
    assert browser.post(path, fields, Origin="null") == 400
    assert browser.post(path, fields, Content_Type="text/plain") == 400
    assert "forged" not in {tag.name for tag in lake.table(EVENTS).tags()}
    assert browser.post(path, fields, Sec_Fetch_Site="same-origin", Origin=server_url) == 303
    assert "forged" in {tag.name for tag in lake.table(EVENTS).tags()}
    assert browser.post(path.replace("/tag", "/untag"), {**fields, KEY: "k2"}) == 303


def test_a_form_that_is_sent_twice_is_done_once(server_url: str, lake: Lamella) -> None:
    """The second press of a button is answered as the first, although the tag is there by then."""
    browser = Browser(server_url)
    fields = {"name": "twice", TOKEN: browser.token(), KEY: "one-press"}
    assert [browser.post("/ui/tables/shop/events/history/tag", fields) for _ in range(2)] == [303, 303]
    assert browser.post("/ui/tables/shop/events/history/tag", {**fields, KEY: "another-press"}) == 409
    lake.table(EVENTS).drop_tag("twice")


def test_other_sites_link_to_pages_and_do_not_embed_them(server_url: str) -> None:
    """A link is followed; an image or a request of another site has the service work nothing out."""
    path = "/ui/jobs/new?kind=vacuum&table=shop.events&preview=1"
    for headers, status in (
        ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Dest": "image"}, 400),
        ({"Sec-Fetch-Site": "same-site", "Sec-Fetch-Dest": "empty"}, 400),
        ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Dest": "document"}, 200),
        ({"Sec-Fetch-Site": "same-origin", "Sec-Fetch-Dest": "empty"}, 200),
    ):
        assert Browser(server_url).get(path, **headers)[0] == status


def test_a_kind_of_key_that_there_is_not_is_the_sender_s_mistake(server_url: str, lake: Lamella) -> None:
    """It is answered as one, and changes nothing."""
    browser = Browser(server_url)
    fields = {"columns": "at", "kind": "spiral", TOKEN: browser.token()}
    assert browser.post("/ui/tables/shop/events/cluster-key", fields) == 400
    assert lake.table(EVENTS).cluster_key().columns == ("user_id",)


def test_a_listing_that_is_requested_wrongly_does_not_renew_itself(server_url: str) -> None:
    """Its page says what is wrong, and stays."""
    status, _, text = Browser(server_url).get("/ui/jobs?table=nodot")
    assert status == 400
    assert "data-live" not in text


def test_the_cookie_is_hidden_from_scripts_and_other_sites(server_url: str) -> None:
    """It is HttpOnly and SameSite=Strict, and only sent to the dashboard."""
    cookie = Browser(server_url).get("/ui")[1]["set-cookie"]
    assert cookie.startswith(f"{COOKIE}=")
    assert {"httponly", "samesite=strict", "path=/ui"} <= {part.strip().lower() for part in cookie.split(";")}


@pytest.mark.parametrize(
    "path", ["/ui", "/ui/tables/shop/events", "/ui/tables/shop/nothing", "/ui/jobs", "/ui/static/x"]
)
def test_every_answer_has_the_strict_policy(server_url: str, path: str) -> None:
    """Pages, and pages that say what went wrong, allow nothing but this service's own files."""
    _, headers, _ = Browser(server_url).get(path)
    if path != "/ui/static/x":
        assert headers["content-security-policy"] == CONTENT_SECURITY_POLICY
    assert "unsafe" not in CONTENT_SECURITY_POLICY
    assert "http" not in CONTENT_SECURITY_POLICY


def test_no_page_names_a_foreign_host() -> None:
    """Templates, scripts and styles hold no address of another host, and no script or style of their own."""
    folder = Path(__file__).resolve().parents[2] / "service" / "lamella" / "service" / "dashboard"
    for path in [*folder.glob("templates/*"), *folder.glob("static/*")]:
        text = path.read_text("utf-8").replace("http://www.w3.org/2000/svg", "")
        assert not re.search(r"https?://|//[a-z]+\.", text), path
        if path.suffix == ".html":
            assert not re.search(r"<style|\sstyle=|\son\w+=|<script(?! src=)|\|\s*safe", text), path


def test_without_the_setting_there_is_no_dashboard(tmp_path: Path) -> None:
    """A service that was told to has no page."""
    app = create_app(Settings(warehouse=str(tmp_path), dashboard=False))
    assert not [route for route in app.routes if getattr(route, "path", "").startswith("/ui")]
