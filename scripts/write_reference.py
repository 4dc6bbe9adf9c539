"""Write docs/openapi.json, docs/reference-*.md and the pictures of docs/concepts.md anew: `make reference`.

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


def files() -> dict[str, str]:
    """The texts of all files by their names."""
    described = http_page.document()
    return {
        "openapi.json": json.dumps(described, indent=1, ensure_ascii=False) + "\n",
        "reference-http.md": http_page.operations_page(described).rstrip() + "\n",
        "reference-http-values.md": http_page.values_page(described).rstrip() + "\n",
        "reference-python.md": python_page.page().rstrip() + "\n",
        **{f"images/{name}": text for name, text in pictures().items()},
    }


def main() -> int:
    """The command; answers its exit status."""
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
