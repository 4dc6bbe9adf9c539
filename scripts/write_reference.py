"""Regenerate the documentation that is derived from the code: `make reference`.

That is docs/openapi.json, docs/reference-*.md, the pictures of docs/concepts.md and the list of decisions.

``--check`` writes nothing and fails when one of them is not what the code says.
"""

from __future__ import annotations

import argparse
import difflib
import json
import sys
from pathlib import Path

from reference import http_page, python_page
from reference.pictures import pictures

DOCS = Path(__file__).resolve().parent.parent / "docs"
_DECISIONS = """# Decisions

<!-- written by make reference -->

Why Lamella is built as it is: one page for each decision of weight, in the order in which they were taken. A decision
that no longer holds says so, and which one took its place.
"""


def files() -> dict[str, str]:
    """Return the texts of all generated files by name."""
    described = http_page.document()
    return {
        "openapi.json": json.dumps(described, indent=1, ensure_ascii=False) + "\n",
        "reference-http.md": http_page.operations_page(described).rstrip() + "\n",
        "reference-http-values.md": http_page.values_page(described).rstrip() + "\n",
        "reference-python.md": python_page.page().rstrip() + "\n",
        "decisions/README.md": decisions(),
        **{f"images/{name}": text for name, text in pictures().items()},
    }


def decisions() -> str:
    """Return the list of decisions, from the titles of their pages."""
    lines = [_DECISIONS]
    for path in sorted((DOCS / "decisions").glob("0*.md")):
        title = path.read_text("utf-8").splitlines()[0].removeprefix("# ")
        lines.append(f"- [{title}]({path.name})")
    return "\n".join(lines) + "\n"


def main() -> int:
    """Run the command; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="fail when a file is out of date")
    checks = parser.parse_args().check
    stale = 0
    for name, text in files().items():
        path = DOCS / name
        before = path.read_text("utf-8") if path.exists() else ""
        if text == before:
            continue
        if not checks:
            path.write_text(text, "utf-8")
            continue
        stale += 1
        lines = difflib.unified_diff(
            before.splitlines(), text.splitlines(), f"docs/{name}", "the code says", lineterm=""
        )
        sys.stderr.write("\n".join([*list(lines)[:60], f"docs/{name} is out of date: make reference\n"]))
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
