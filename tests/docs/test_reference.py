"""The reference pages and the committed description of the API are what the code says."""

from __future__ import annotations

import json
import re
import subprocess
import sys

from docs.fenced import ROOT
from lamella.client import AsyncLamella, Lamella
from lamella.client import spark as lamella_spark
from lamella.client.http import Table
from reference.prose import markdown


def test_reference_pages_and_pictures_are_up_to_date() -> None:
    """What `make reference` would write is committed, so a change of the API is seen where changes are looked at."""
    command = [sys.executable, "scripts/write_reference.py", "--check"]
    done = subprocess.run(command, check=False, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_every_operation_is_on_the_page_of_http() -> None:
    """The page has each method and path of the committed document, and the page of values each type."""
    document = json.loads((ROOT / "docs" / "openapi.json").read_text("utf-8"))
    page = (ROOT / "docs" / "reference-http.md").read_text("utf-8")
    values = (ROOT / "docs" / "reference-http-values.md").read_text("utf-8")
    wanted = {f"{method.upper()} {path}" for path, methods in document["paths"].items() for method in methods}
    assert set(re.findall(r"^`((?:GET|POST|PUT|DELETE) [^`]+)`$", page, flags=re.MULTILINE)) == wanted
    assert set(re.findall(r"^## (\w+)$", values, flags=re.MULTILINE)) == set(document["components"]["schemas"])


def test_every_public_method_is_on_the_page_of_python() -> None:
    """Methods of the clients and of tables, and all that `lamella.client.spark` gives, are there."""
    page = (ROOT / "docs" / "reference-python.md").read_text("utf-8")
    headings = set(re.findall(r"^#{3,4} ([\w.]+)$", page, flags=re.MULTILINE))
    methods = {f"{kind.__name__}.{name}" for kind in (Lamella, Table) for name in dir(kind) if not name.startswith("_")}
    documented = {name for name in methods if getattr(Lamella, name.split(".")[1], None) or name.startswith("Table")}
    assert documented - headings == set()
    assert set(lamella_spark.__all__) - {"LamellaSparkWarning"} - headings == set()
    assert {"AsyncLamella", "AsyncTable"} <= headings
    assert AsyncLamella.__doc__


def test_an_example_of_a_docstring_is_a_code_block() -> None:
    """It comes last, as a session of Python, and is not changed; text and sections before it are prose."""
    shown = markdown("""The ``rows``, as
        :meth:`Table.scan` has them.

        Raises:
            TableNotFound: there is no such table.

        Example:
            >>> for row in rows("``a``"):
            ...     print(row)
            1  2
        """)
    assert shown == (
        "The `rows`, as `scan` has them.\n\nRaises:\n\n- `TableNotFound`: there is no such table.\n\n"
        '```pycon\n>>> for row in rows("``a``"):\n...     print(row)\n1  2\n```'
    )


def test_the_page_of_python_has_the_examples() -> None:
    """Below the text of each method."""
    page = (ROOT / "docs" / "reference-python.md").read_text("utf-8")
    part = page.partition("\n#### Table.prune\n")[2].partition("\n#### ")[0]
    assert part.count("```pycon\n>>> ") == 1
    assert part.rstrip().endswith("```")
