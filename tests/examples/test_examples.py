"""Every example runs as its first lines say, and prints what it is about."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
#: Projects of other programs, which tests of their own run.
PROJECTS = {"dbt", "orchestration"}
#: What each script prints, as patterns of whole lines in their order; other lines may lie between.
PRINTED = {
    "quick_start": [
        "300,000 rows in 30 files",
        "1 of 30 files: day-09.parquet",
        "2,500 rows of Sweden, 310,000.0 in all",
        "newest: 2026-01-30 22:13:12",
    ],
    "external_tables": [
        "sales: 12 files added",
        r"\['id', 'price', 'year', 'month'\]",
        "1 of 12 files for March, 1,000 rows",
        "sales: 1 added, 12 unchanged; 500 rows of 2026",
        "orders: 5 files added, 50 rows from 450 on",
        "orders: 1 added, 5 removed, 1 row",
        "before: 500 rows",
    ],
    "log_table_indexes": [
        "  40 of 40 blocks for request_id = .*",
        "  40 of 40 blocks for message LIKE .*",
        "  40 of 40 blocks for get_json_object.*",
        "one hour: 1 block",
        r"advice for request_id: (bloom|keys), \d+ of 100",
        "with three indexes:",
        "   [1-4] of 40 blocks for request_id = .*",
        "  10 of 40 blocks for message LIKE .*",
        "   [1-4] of 40 blocks for get_json_object.*",
        ".*certificate expired.*",
        "0 blocks are not indexed",
        "the predicate is not on message",
    ],
    "streaming_upserts": [
        "8 batches, then the program stops",
        "12 more after its restart, offset 20",
        "433 vehicles, the newest batch: 50 of them",
        r"\{'insert': 432, 'update_postimage': 568, 'update_preimage': 568\}",
        r"20 blocks; \d+ deleted rows in their files",
    ],
    "policies": [
        "before: 30 blocks, 30 of them not indexed",
        "after: 1 blocks, 0 of them not indexed",
        "  (vacuum|index_refresh|compact): succeeded",
        "3,000 rows, as before",
    ],
}


def test_every_example_is_tried_and_listed() -> None:
    """A new script, or notebook, gets a test and a line in the list of examples."""
    scripts = {path.stem for path in EXAMPLES.glob("*.py")} - {"demo"}  # tests/client/test_demo.py
    assert scripts == set(PRINTED)
    listed = set(re.findall(r"^\| \[(\S+)\]\((\S+)\)", (EXAMPLES / "README.md").read_text("utf-8"), re.MULTILINE))
    names = {path.name for path in EXAMPLES.iterdir() if path.suffix in (".py", ".ipynb") or path.name in PROJECTS}
    assert listed == {(name, name) for name in names}


@pytest.mark.process
@pytest.mark.parametrize("name", PRINTED)
def test_a_script_prints_what_it_is_about(name: str, tmp_path: Path) -> None:
    """As a person runs it, in an empty folder."""
    command = [sys.executable, str(EXAMPLES / f"{name}.py")]
    done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=tmp_path, timeout=300)
    assert done.returncode == 0, done.stderr
    lines = iter(done.stdout.splitlines())
    for pattern in PRINTED[name]:
        assert any(re.fullmatch(pattern, line) for line in lines), (pattern, done.stdout)


def run_cells(cells: list[dict[str, Any]]) -> list[tuple[str, Any]]:
    """The code of each cell with the value of its last expression, which a notebook would show."""
    names: dict[str, Any] = {"__name__": "__main__"}
    shown = []
    for cell in cells:
        text = "".join(cell["source"])
        body = ast.parse(text).body
        last = body.pop() if body and isinstance(body[-1], ast.Expr) else None
        exec(compile(ast.Module(body, []), "cell", "exec"), names)  # noqa: S102  # our own notebook
        value = None
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), "cell", "eval"), names)  # noqa: S307
        shown.append((text, value))
    return shown


def test_the_notebook_runs_from_top_to_bottom(capsys: pytest.CaptureFixture[str]) -> None:
    """Each cell, in order; what it shows has a form for notebooks. No output is stored in the file."""
    notebook = json.loads((EXAMPLES / "embedded_notebook.ipynb").read_text("utf-8"))
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in cells)
    assert len({cell["id"] for cell in notebook["cells"]}) == len(notebook["cells"])
    shown = run_cells(cells)
    html = {text.splitlines()[-1]: value._repr_html_() for text, value in shown if hasattr(value, "_repr_html_")}
    assert {"readings.info()", "found"} <= set(html)
    assert "lab.readings" in html["readings.info()"]
    assert "1 of 12 blocks" in html["found"]
    week = next(value for text, value in shown if text.startswith("week = "))
    assert sorted(week.index) == [0, 1, 2, 3, 4]
    now, before = map(int, re.findall(r"(\d+) rows now, (\d+) before", capsys.readouterr().out)[0])
    assert now < before == 240_000
