"""The site: every page is in it and in its map, its links lead somewhere, and it asks nothing of other hosts."""

from __future__ import annotations

import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

from docs.fenced import ROOT, pages

#: Attributes of elements that a browser loads by itself.
_LOADED = {"img": "src", "script": "src", "link": "href", "iframe": "src", "source": "src", "object": "data"}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as `make docs` does: a link or an anchor that leads nowhere is an error."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-c", "docs", "-d", str(folder / "cache")]
    built = folder / "site"
    done = subprocess.run([*command, ".", str(built)], check=False, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return built


def linked(page: str) -> list[tuple[str, str]]:
    """The Markdown files that a page links to, from the root of the repository, and the anchors in them."""
    links = re.findall(r"\]\(([^)#\s]*)(?:#([\w-]+))?\)", (ROOT / page).read_text("utf-8"))
    paths = [(ROOT / page if not link else (ROOT / page).parent / link, anchor) for link, anchor in links]
    inside = [(path.resolve(), anchor) for path, anchor in paths if path.suffix == ".md" and "://" not in str(path)]
    return [(str(path.relative_to(ROOT)), anchor) for path, anchor in inside]


def anchors(page: str) -> set[str]:
    """What links can lead to within a page: its headings, written as GitHub writes them."""
    text = re.sub(r"^```.*?^```", "", (ROOT / page).read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)
    titles = re.findall(r"^#+ (.+)$", text, flags=re.MULTILINE)
    shown = [re.sub(r"\[([^]]+)\]\([^)]*\)", r"\1", title) for title in titles]
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in shown}


def test_every_page_is_on_the_map() -> None:
    """docs/index.md, which is the navigation, lists each page once; decisions have a list of their own."""
    text = (ROOT / "docs" / "index.md").read_text("utf-8")
    entries = re.findall(r"^- \[[^\]]+\]\(([^)#]+)\)", text, flags=re.MULTILINE)
    listed = [str((ROOT / "docs" / entry).resolve().relative_to(ROOT)) for entry in entries]
    decisions = {page for page in pages() if page.startswith("docs/decisions/0")}
    assert len(listed) == len(set(listed))
    assert set(pages()) - decisions - {"docs/index.md"} - set(listed) == set()


def test_every_decision_is_listed_by_its_title() -> None:
    """docs/decisions/README.md has all decisions, in their order."""
    found = sorted((ROOT / "docs" / "decisions").glob("0*.md"))
    titles = [path.read_text("utf-8").splitlines()[0].removeprefix("# ") for path in found]
    text = (ROOT / "docs" / "decisions" / "README.md").read_text("utf-8")
    listed = re.findall(r"^- \[([^]]+)\]\(([^)]+)\)", text, flags=re.MULTILINE)
    assert listed == list(zip(titles, [path.name for path in found], strict=True))
    assert [int(title.split(".")[0]) for title in titles] == [int(path.name[:4]) for path in found]


def test_links_are_right_in_the_repository_too() -> None:
    """Every page of the repository that a page links to is there, and so is the heading in it."""
    for page in pages():
        for path, anchor in linked(page):
            assert (ROOT / path).exists(), (page, path)
            assert not anchor or anchor in anchors(path), (page, path, anchor)


@pytest.mark.soak
def test_every_page_is_in_the_site(site: Path) -> None:
    """Under its path in the repository."""
    assert [page for page in pages() if not (site / page).with_suffix(".html").exists()] == []


@pytest.mark.soak
def test_the_site_loads_nothing_from_elsewhere(site: Path) -> None:
    """No page has a script, a style, a font or a picture of another host, so reading it tells nobody."""
    found: list[tuple[str, str]] = []

    class Loads(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            value = dict(attrs).get(_LOADED.get(tag, "")) or ""
            if re.match(r"(?:\w+:)?//", value):
                found.append((tag, value))

    built = list(site.rglob("*.html"))
    assert len(built) > len(pages())
    for page in built:
        Loads().feed(page.read_text("utf-8"))
    styles = [style.read_text("utf-8") for style in site.rglob("*.css")]
    assert found == []
    assert styles
    assert [
        url for style in styles for url in re.findall(r"(?:@import|url\()\s*['\"]?(?:\w+:)?//[^)'\"]+", style)
    ] == []


@pytest.mark.soak
def test_the_site_can_be_searched_and_entered(site: Path) -> None:
    """It has an index for its own search, and its first page leads to the map."""
    assert '"docs/quick-start"' in (site / "searchindex.js").read_text("utf-8")
    target = re.search(r"url=([^\"]+)", (site / "index.html").read_text("utf-8"))
    assert target is not None
    assert (site / target.group(1)).exists()
