"""Run the test suites of other projects against Lamella, and write what came of them to docs/conformance.md.

`make conformance` runs all. The suites are fetched with git; `--dat` and `--delta` take checkouts instead, `--tables` a
folder of Delta tables. `--suite` runs some of them, and then the page is only printed. The exit status is 1 if a case
gives wrong rows.

Needs git, Java, and Maven for Iceberg's kit.
"""

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import iceberg_rck
from foreign import delta
from foreign.cases import Case, Suite
from lamella.client import Lamella
from stack.tools import ROOT, MissingTool, jars, say

PAGE: Final = ROOT / "docs" / "conformance.md"
SUITES: Final = ("dat", "golden", "rck")


def main() -> int:
    """Run the suites; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--suite", action="append", choices=SUITES, help="only these")
    parser.add_argument("--dat", type=Path, help="a checkout of the acceptance tests")
    parser.add_argument("--delta", type=Path, help="a clone of Delta")
    parser.add_argument("--tables", type=Path, help="a folder with Delta tables, instead of those of Delta")
    given = parser.parse_args()
    chosen = given.suite or SUITES
    try:
        with tempfile.TemporaryDirectory(prefix="lamella-conformance-") as made:
            suites = [run(name, given, Path(made) / name) for name in chosen]
    except MissingTool as error:
        say(str(error))
        return 1
    text = page(suites)
    if given.suite:
        print(text)
    else:
        PAGE.write_text(text)
    for suite in suites:
        say(f"{suite.title}: {_counts(suite)}")
    return 1 if any(suite.count("wrong") for suite in suites) else 0


def run(name: str, given: argparse.Namespace, folder: Path) -> Suite:
    """Run one suite, in an empty folder."""
    folder.mkdir()
    if name == "rck":
        return _rck(folder)
    with iceberg_rck.serving(folder / "service") as url, Lamella(url) as lake:
        if name == "dat":
            return delta.acceptance(lake, given.dat or _clone(delta.DAT, folder / "dat"), folder)
        tables = given.tables
        if tables is None:
            tables = delta.unpacked(given.delta or _clone(delta.DELTA, folder / "delta"), folder / "tables")
        return delta.golden(lake, tables, folder)


def _clone(address: str, folder: Path) -> Path:
    say(f"fetching {address}")
    done = subprocess.run(["git", "clone", "--quiet", "--depth", "1", address, str(folder)], check=False)
    if done.returncode:
        raise MissingTool(f"{address} cannot be cloned: give a checkout (--dat, --delta)")
    return folder


def _rck(folder: Path) -> Suite:
    kit = jars(ROOT / "scripts" / "rck" / "pom.xml", ROOT / "build" / "rck", "iceberg-open-api-*-tests.jar")
    cases: list[Case] = []
    for kind, tests in iceberg_rck.TESTS.items():
        with iceberg_rck.serving(folder / f"service-{kind}") as url:
            outcome = iceberg_rck.outcome_of(iceberg_rck.run(kit, url, tests, [], folder / f"report-{kind}"))
        cases += (Case(name, "served") for name in outcome.passed)
        cases += (Case(name, "refused", "the service does not have the endpoint") for name in outcome.refused)
        cases += (Case(name, "wrong", reason) for name, reason in outcome.failed.items())
        cases += (Case(name, "not a case", "the kit leaves it out") for name in outcome.left_out)
    about = "Iceberg's REST compatibility kit 1.11, against the service's [Iceberg catalog](iceberg.md)."
    return Suite("Iceberg's REST compatibility kit", about, sorted(cases))


def page(suites: Sequence[Suite]) -> str:
    """Return the page."""
    lines = [
        "# Conformance",
        "",
        "Test suites of other projects, run against Lamella. A case is *served* if its rows are those that the suite",
        "expects, *refused* if the service gives an error with a reason and no rows, and otherwise *wrong*.",
        "`make conformance` writes this page.",
        "",
        "| Suite | Served | Refused | Wrong |",
        "|---|---|---|---|",
        *(f"| {suite.title} | {_numbers(suite)} |" for suite in suites),
        "",
    ]
    for suite in suites:
        lines += [f"## {suite.title}", "", suite.about, ""]
        lines += _section(suite, "wrong", "Wrong")
        lines += _section(suite, "refused", "Refused")
        served = [case.name for case in suite.cases if case.result == "served"]
        lines += ["### Served", "", ", ".join(f"`{name}`" for name in served) or "None.", ""]
        left_out = [case.name for case in suite.cases if case.result == "not a case"]
        if left_out:
            lines += ["### Nothing to compare with", "", ", ".join(f"`{name}`" for name in left_out), ""]
    return "\n".join(lines)


def _section(suite: Suite, result: str, title: str) -> list[str]:
    cases = [case for case in suite.cases if case.result == result]
    if not cases:
        return []
    rows = [f"| `{case.name}` | {_cell(case.reason)} |" for case in cases]
    return [f"### {title}", "", "| Case | Reason |", "|---|---|", *rows, ""]


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _each(suite: Suite) -> tuple[int, int, int]:
    return suite.count("served"), suite.count("refused"), suite.count("wrong")


def _numbers(suite: Suite) -> str:
    return " | ".join(map(str, _each(suite)))


def _counts(suite: Suite) -> str:
    served, refused, wrong = _each(suite)
    return f"{served} served, {refused} refused, {wrong} wrong"


if __name__ == "__main__":
    sys.exit(main())
