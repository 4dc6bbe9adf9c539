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


def linked(page: str) -> list[str]:
    """The Markdown files that a page links to, from the root of the repository."""
    folder = (ROOT / page).parent
    links = re.findall(r"\]\(([^)#\s]+\.md)(?:#[\w-]+)?\)", (ROOT / page).read_text("utf-8"))
    return [str((folder / link).resolve().relative_to(ROOT)) for link in links if "://" not in link]


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


def test_links_are_right_in_the_repository_too(site: Path) -> None:
    """Every page of the repository that a page links to is there, and so it is in the site."""
    for page in pages():
        assert [link for link in linked(page) if not (ROOT / link).exists()] == [], page
        assert (site / page).with_suffix(".html").exists()


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


def test_the_site_can_be_searched_and_entered(site: Path) -> None:
    """It has an index for its own search, and its first page leads to the map."""
    assert '"docs/quick-start"' in (site / "searchindex.js").read_text("utf-8")
    target = re.search(r"url=([^\"]+)", (site / "index.html").read_text("utf-8"))
    assert target is not None
    assert (site / target.group(1)).exists()
