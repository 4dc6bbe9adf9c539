"""Run Iceberg's REST compatibility kit against a service (`make rck`), and say what came of its tests.

Tests that need an endpoint which the service does not list are counted apart from those that passed and from other
failures, which are named. The exit status is 1 when there are any of these.

Needs Java and Maven, which fetches the kit once (`scripts/rck/pom.xml`). Options of the kit are passed on:
`make rck ARGS="-D rck.requires-namespace-create=false"`. Names with dots are left out: in Lamella a dot separates the
levels of a namespace.
"""

import argparse
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import uvicorn

from lamella.service.app import create_app
from lamella.service.config.settings import Settings
from stack.tools import ROOT, MissingTool, jars, say

#: The kit's classes of tests. Each runs against an empty service: a class leaves the names of its last test behind.
TESTS: Final = {
    "tables": "org.apache.iceberg.rest.RESTCompatibilityKitCatalogTests",
    "views": "org.apache.iceberg.rest.RESTCompatibilityKitViewCatalogTests",
}
_REPORT: Final = "TEST-junit-jupiter.xml"
_REFUSED: Final = "java.lang.UnsupportedOperationException"
_LIMIT_S: Final = 900
_START_S: Final = 60


class Outcome(NamedTuple):
    """Names of tests. ``refused``: by the rules; ``left_out``: not tried by the kit; ``failed``: with the reason."""

    passed: list[str]
    refused: list[str]
    left_out: list[str]
    failed: dict[str, str]


def main() -> int:
    """Run the kit; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-D", action="append", default=[], metavar="NAME=VALUE", dest="options", help="for the kit")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "rck-report", help="where JUnit's report is left")
    parser.add_argument("--only", choices=TESTS, help="default: all tests")
    given = parser.parse_args()
    try:
        kit = jars(ROOT / "scripts" / "rck" / "pom.xml", ROOT / "build" / "rck", "iceberg-open-api-*-tests.jar")
    except MissingTool as error:
        say(str(error))
        return 1
    is_failed = False
    for name in (given.only,) if given.only else TESTS:
        with tempfile.TemporaryDirectory(prefix="lamella-rck-") as folder, serving(Path(folder)) as url:
            outcome = outcome_of(run(kit, url, TESTS[name], given.options, given.out / name))
        print(f"{name}\n{summary(outcome)}", flush=True)
        is_failed = is_failed or bool(outcome.failed)
    return 1 if is_failed else 0


@contextmanager
def serving(folder: Path, **settings: Any) -> Iterator[str]:
    """Yield the address of an empty service in this process, by default with a warehouse in a folder."""
    given = {"warehouse": str(folder / "warehouse"), "log_level": "error", "log_requests": False, **settings}
    server = uvicorn.Server(uvicorn.Config(create_app(Settings(**given)), log_config=None))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=server.run, args=([listener],), name="service")
        thread.start()
        try:
            give_up = time.monotonic() + _START_S
            while not server.started:
                if not thread.is_alive() or time.monotonic() > give_up:
                    raise SystemExit("the service did not start")
                time.sleep(0.05)
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()


def run(kit: Path, url: str, tests: str, options: Sequence[str], out: Path) -> Path:
    """Return JUnit's report of a class of the kit's tests against an address."""
    shutil.rmtree(out, ignore_errors=True)
    java = Path(os.environ["JAVA_HOME"]) / "bin" / "java" if "JAVA_HOME" in os.environ else "java"
    # "local" would test a server that the kit brings
    own = ("rck.local=false", "rck.requires-namespace-create=true", "rck.supports-names-with-dot=false")
    properties = [f"-D{each}" for each in (*own, *options)]
    launcher = ["org.junit.platform.console.ConsoleLauncher", "execute", "--select-class", tests, "--details=none"]
    out.mkdir(parents=True)
    with (out / "output.txt").open("wb") as output:
        done = subprocess.run(
            [java, *properties, "-cp", f"{kit}/*", *launcher, "--disable-banner", "--reports-dir", str(out)],
            env=os.environ | {"CATALOG_URI": f"{url}/iceberg", "CATALOG_WAREHOUSE": "rck"},
            stdout=output,
            stderr=subprocess.STDOUT,
            timeout=_LIMIT_S,
            check=False,
        )
    report = out / _REPORT
    if done.returncode not in (0, 1) or not report.exists():  # 1: tests failed
        raise SystemExit(f"the kit did not run: see {out / 'output.txt'}")
    return report


def outcome_of(report: Path) -> Outcome:
    """Return the outcome of each test in a report."""
    found = Outcome([], [], [], {})
    for case in ElementTree.parse(report).iter("testcase"):  # noqa: S314  # the report of our own run
        name = case.get("name", "")
        failure = next((each for each in case if each.tag in ("failure", "error")), None)
        if failure is not None:
            message = failure.get("message") or ""
            # some tests expect another exception than this one, and fail by an assertion that names it
            if failure.get("type") == _REFUSED or f"{_REFUSED}: Server does not support endpoint" in message:
                found.refused.append(name)
            else:
                found.failed[name] = " ".join(message.partition("Throwable that failed")[0].split())
        elif case.find("skipped") is not None:
            found.left_out.append(name)
        else:
            found.passed.append(name)
    if not found.passed and not found.refused:
        raise SystemExit(f"no test of the kit ran: see {report}")
    return found


def summary(outcome: Outcome) -> str:
    """Return a line for each count, and one for each failure."""
    lines = [
        f"passed {len(outcome.passed)}",
        f"refused by the rules {len(outcome.refused)}",
        f"left out by the kit {len(outcome.left_out)}",
        f"other failures {len(outcome.failed)}",
        *(f"  {name}: {why}" for name, why in sorted(outcome.failed.items())),
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
