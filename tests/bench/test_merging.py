"""Tables of several runs on one page: each is of one run and says of which, and no ratio is made of two."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from speed.figures import figures
from speed.merging import merged, run_of, runs
from speed.questions import NAMES
from speed.report import markdown, text, write_docs, write_peers

RUN = Path(__file__).resolve().parents[2] / "bench" / "run.py"


def machine(commit: str) -> dict[str, Any]:
    """What a result says of where it was made."""
    about = {"commit": commit, "python": "3.11", "cpus": 2, "cpu": "any", "load_at_start": 0.1}
    return {**about, "options": f"--parts of {commit}"}


def prune(blocks: int, cpu_ms: float) -> dict[str, Any]:
    """The table of one size: every engine takes a multiple of ``cpu_ms``."""
    factors = {"lamella": 1, "numpy, two layers": 0.5, "pyiceberg": 200}
    engines = {
        name: {
            "timings": {p: {"cpu_ms": cpu_ms * factor, "p50_ms": cpu_ms * factor} for p in NAMES},
            "open_cpu_ms": 1.0,
            "rss_mb": 1.0,
        }
        for name, factor in factors.items()
    }
    return {"blocks": blocks, "may_match": dict.fromkeys(NAMES, 1), "engines": engines}


def register(per_second: float) -> dict[str, Any]:
    """The table of registering."""
    ways = {"lamella": 6 * per_second, "pyiceberg add_files": per_second}
    rates = {name: {"per_second": rate, "per_cpu_second": rate} for name, rate in ways.items()}
    return {"files": 10, "columns": 20, **rates}


def first() -> dict[str, Any]:
    """A run of two sizes and of registering."""
    sizes = {str(count): prune(count, 1.0) for count in (10_000, 1_000_000)}
    return {"machine": machine("one"), "prune": sizes, "register": register(100.0)}


def second() -> dict[str, Any]:
    """A later run of one of these sizes and of a larger one."""
    sizes = {str(count): prune(count, 7.0) for count in (1_000_000, 10_000_000)}
    return {"machine": machine("two"), "prune": sizes}


def test_a_table_is_taken_whole_from_the_run_named_last() -> None:
    """Where two runs measured the same size, nothing of the earlier one's table is left."""
    found = merged([first(), second()])
    assert found["prune"]["1000000"] == {**second()["prune"]["1000000"], "run": 2}
    assert found["prune"]["10000"] == {**first()["prune"]["10000"], "run": 1}
    assert run_of(found["register"]) == 1
    assert [each["commit"] for each in runs(found)] == ["one", "two"]


def test_sizes_stand_in_order_whatever_the_order_of_the_runs() -> None:
    """A page lists its tables from the smallest size to the largest."""
    for order in ([first(), second()], [second(), first()]):
        assert list(merged(order)["prune"]) == ["10000", "1000000", "10000000"]


def test_a_run_of_which_nothing_is_left_is_not_named() -> None:
    """A run whose every table another one replaced is no part of the page."""
    replaced = {"machine": machine("none"), "prune": {"10000": prune(10_000, 3.0)}}
    found = merged([replaced, first()])
    assert [each["commit"] for each in runs(found)] == ["one"]
    assert all(run_of(table) == 1 for table in found["prune"].values())


def test_what_was_merged_can_be_merged_again() -> None:
    """Each table keeps the run that it is of when a merged result is merged with one more."""
    third = {"machine": machine("three"), "register": register(50.0)}
    found = merged([merged([first(), second()]), third])
    commits = [each["commit"] for each in runs(found)]
    assert [commits[run_of(table) - 1] for table in found["prune"].values()] == ["one", "two", "two"]
    assert commits[run_of(found["register"]) - 1] == "three"


def test_no_ratio_is_made_of_two_runs() -> None:
    """Growth from 1e4 to 1e6 blocks is a figure of one run that measured both, and missing where none did."""
    growth = "P1: times as long at 1e6 as at 1e4 blocks"
    assert growth in {figure.name for figure in figures(first())}
    assert growth not in {figure.name for figure in figures(merged([first(), second()]))}


def test_figures_say_of_which_run_they_are() -> None:
    """A ratio has the number of the run whose table it was taken from."""
    by_size = {figure.name: figure.run for figure in figures(merged([first(), second()]))}
    assert by_size["P2, 10,000 blocks: times as fast as pyiceberg"] == 1
    assert by_size["P2, 10,000,000 blocks: times as fast as pyiceberg"] == 2
    assert by_size["files registered per second of the processor: times pyiceberg add_files"] == 1


def test_a_page_of_several_runs_names_the_run_of_each_table() -> None:
    """Every table of a merged page has a line with its run, and every run is described once."""
    page = markdown(merged([first(), second()]))
    sections = {part.splitlines()[0]: part for part in page.split("### ")[1:]}
    assert "Run 1." in next(part for title, part in sections.items() if title.startswith("10,000 blocks"))
    assert "Run 2." in next(part for title, part in sections.items() if title.startswith("1,000,000 blocks"))
    assert "Run 1." in next(part for title, part in sections.items() if title.startswith("Registering"))
    assert page.count("- run 1: commit one") == page.count("- run 2: commit two") == 1
    assert "`--parts of two`" in page
    assert "| figure | run | measured |" in page


def test_a_page_of_one_run_numbers_nothing() -> None:
    """A single run needs no number, on the page or in print."""
    assert "Run 1" not in markdown(first())
    assert "run 1" not in text(first())
    assert "run 2" in text(merged([first(), second()]))


def test_only_what_is_between_the_marks_is_written(tmp_path: Path) -> None:
    """Text around the measured part of the page stays, and a second writing replaces the first."""
    page = tmp_path / "performance-figures.md"
    page.write_text("before\n<!-- written by make bench ARGS=--docs: begin -->\nold\n<!-- end -->\nafter\n")
    write_docs(first(), tmp_path)
    write_docs(merged([first(), second()]), tmp_path)
    written = page.read_text()
    assert written.startswith("before\n")
    assert written.endswith("\nafter\n")
    assert "old" not in written
    assert written.count("### Goals") == 1
    assert "not all of the same" in (tmp_path / "images" / "performance.svg").read_text()


def test_the_newest_peers_have_a_part_of_their_own(tmp_path: Path) -> None:
    """Their tables are written into their part of the page, without goals, and the other part stays."""
    page = tmp_path / "performance-figures.md"
    parts = ("ARGS=--docs", "ARGS=--docs-peers")
    page.write_text("".join(f"<!-- written by make bench {part}: begin -->\nold\n<!-- end -->\n" for part in parts))
    write_peers(second(), tmp_path)
    measured, _, newest = page.read_text().partition("<!-- end -->")
    assert "old" in measured
    assert "old" not in newest
    assert "### 1,000,000 blocks" in newest
    assert "Goals" not in newest


def test_merging_from_the_command_line_measures_nothing(tmp_path: Path) -> None:
    """``--merge`` reads files, writes one with figures, and leaves those that it read as they were."""
    files = []
    for number, results in enumerate((first(), second())):
        files.append(tmp_path / f"{number}.json")
        files[-1].write_text(json.dumps(results))
    before = [file.read_bytes() for file in files]
    out = tmp_path / "out.json"
    command = [sys.executable, str(RUN), "--merge", *map(str, files), "--out", str(out)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert "run 2: P2, 10,000,000 blocks: times as fast as pyiceberg: 200" in done.stdout
    assert [file.read_bytes() for file in files] == before
    written = json.loads(out.read_text())
    assert {figure["run"] for figure in written["figures"]} == {1, 2}


def test_merging_does_not_overwrite_what_it_reads(tmp_path: Path) -> None:
    """A file that is to be merged cannot be the one that is written, however its path is spelt."""
    file = tmp_path / "one.json"
    file.write_text(json.dumps(first()))
    before = file.read_bytes()
    same = tmp_path / "folder" / ".." / "one.json"
    (tmp_path / "folder").mkdir()
    command = [sys.executable, str(RUN), "--merge", str(file), "--out", str(same)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2
    assert "one of the files to merge" in done.stderr
    assert file.read_bytes() == before


@pytest.mark.parametrize("part", ["memory", "appends", "commit"])
def test_parts_without_sizes_are_one_table(part: str) -> None:
    """A part that is not by size is taken whole, with its run."""
    other = {"machine": machine("other"), part: {"anything": {"at": 1}}}
    assert merged([first(), other])[part] == {"anything": {"at": 1}, "run": 2}
