"""How Sphinx makes the site of these pages: `make docs`.

The navigation is what docs/index.md lists: each of its headings is a part, and the pages linked below it, in their
order, are the part's pages. So readers of the repository and of the site see one map, and no page has markup that only
Sphinx understands.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from lamella.service import release as lamella_release

if TYPE_CHECKING:
    from sphinx.application import Sphinx

MAP = "docs/index"

project = "Lamella"
release = lamella_release()
project_copyright = "the authors of Lamella, Apache-2.0"
root_doc = MAP
# The pages at the top of the repository are in the site too, so that links to them lead somewhere.
include_patterns = ["docs/**", "CHANGELOG.md", "CONTRIBUTING.md", "README.md", "SECURITY.md", "examples/README.md"]
exclude_patterns = [".*", "bench", "build", "client", "dist", "service", "snapshot", "tests", "**/__pycache__"]
extensions = ["myst_parser"]
myst_enable_extensions = ["tasklist"]
suppress_warnings = [
    "misc.highlighting_failure",  # requests without "HTTP/1.1"; whether blocks are right is tests/docs' matter
    "myst.header",  # a page may go from its title to small headings
]
myst_heading_anchors = 4
html_theme = "furo"
html_title = "Lamella"
html_copy_source = False
html_extra_path = ["start"]
html_theme_options = {"navigation_with_keys": True}
# Output of commands is shown as it is.
highlight_language = "text"


def listed(text: str) -> list[tuple[str, list[tuple[str, str]]]]:
    """The parts of the map, each with the titles and files of its pages."""
    parts = re.split(r"^## (.+)$", text, flags=re.MULTILINE)[1:]
    lists = [re.findall(r"^- \[([^\]]+)\]\(([^)#]+)\.md\)", body, flags=re.MULTILINE) for body in parts[1::2]]
    return list(zip(parts[::2], lists, strict=True))


def add_navigation(_app: Sphinx, name: str, source: list[str]) -> None:
    """Tell Sphinx the map as tables of contents that are not shown on the page itself."""
    if name == MAP:
        for part, pages in listed(source[0]):
            entries = [(title, f"/docs/{page}" if not page.startswith("../") else page[2:]) for title, page in pages]
            lines = "\n".join(f"{title} <{page}>" for title, page in entries)
            source[0] += f"\n```{{toctree}}\n:hidden:\n:caption: {part}\n\n{lines}\n```\n"
    if name == "docs/decisions/README":
        source[0] += "\n```{toctree}\n:hidden:\n:glob:\n\n[0-9]*\n```\n"


def show_folders(app: Sphinx, name: str, source: list[str]) -> None:
    """Let links to folders of the repository be their text: the site has no page for them."""
    here = (app.srcdir / name).parent

    def shown(link: re.Match[str]) -> str:
        return link.group(1) if (here / link.group(2)).is_dir() else link.group()

    source[0] = re.sub(r"\[([^\]\n]+)\]\((?!\w+:)([^)#\s]+)\)", shown, source[0])


def setup(app: Sphinx) -> dict[str, bool]:
    """What Sphinx asks of an extension."""
    app.connect("source-read", show_folders)
    app.connect("source-read", add_navigation)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
