"""Run pyiceberg's integration tests against a service (`make pyiceberg-suite`), and say what came of them.

pip fetches pyiceberg's source archive of the locked version, with the tests. They talk to a REST catalog, an S3 store
and a Spark Connect server at fixed ports: here these are a service, moto and Iceberg's Spark runtime on free ports,
which are put into the copy of the tests in `build/`. Spark makes the tables that the tests read, through the service.

The service plans the scans; with `--planning client` pyiceberg does. Tests of other catalogs than REST are left out.

`scripts/foreign/pyiceberg_suite.toml` names the tests that cannot pass, each with its reason. The exit status is 1 if
another test fails, or if one of these passes.

Needs Java; Maven's central repository for the Spark runtime (200 MB, once).
"""

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from fnmatch import fnmatchcase
from pathlib import Path
from typing import IO, Final, NamedTuple, cast

from iceberg_rck import serving
from stack.tools import ROOT, MissingTool, printed, say

sys.path.insert(0, str(ROOT / "tests"))
from fixtures_s3 import S3Server, s3_server
from support.ports import free_port

NAME: Final = "pyiceberg-suite"
LOCK: Final = ROOT / f"requirements-{NAME}.lock"
KNOWN: Final = ROOT / "scripts" / "foreign" / "pyiceberg_suite.toml"
_RUNTIME: Final = (
    "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0,org.apache.iceberg:iceberg-aws-bundle:1.12.0"
)
#: Of the archive: the tests, and the program that makes their tables.
_WANTED: Final = re.compile(r"(pyproject\.toml|dev/provision\.py|tests/(conftest\.py|(integration|utils)/.*))")
#: Tests of Hive's catalog, and of those in memory and of SQL.
_LEFT_OUT: Final = "not hive_catalog and not catalog_hive and not hive_migration and not sqlite and not memory_catalog"
_BUCKET: Final = "warehouse"
_KEYS: Final = {"AWS_ACCESS_KEY_ID": "admin", "AWS_SECRET_ACCESS_KEY": "password", "AWS_REGION": "us-east-1"}
_LIMIT_S: Final = 5_400


class Outcome(NamedTuple):
    """Names of tests. ``known``: failed as expected; ``skipped``, ``failed``: with the reason."""

    passed: list[str]
    known: dict[str, str]
    skipped: dict[str, str]
    failed: dict[str, str]
    surprises: list[str]


def main() -> int:
    """Run the tests; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "build" / f"{NAME}-report", help="where reports are left")
    parser.add_argument("--planning", choices=("service", "client"), default="service", help="who plans scans")
    parser.add_argument("tests", nargs="*", help="options and tests for pytest, after --; default: all tests")
    given = parser.parse_args()
    given.out = given.out.resolve()  # the tests run in another folder
    shutil.rmtree(given.out, ignore_errors=True)
    given.out.mkdir(parents=True)
    try:
        python = printed("environment.py", NAME)
        with tempfile.TemporaryDirectory(prefix=f"lamella-{NAME}-") as made, ExitStack() as opened:
            folder = Path(made)
            store = opened.enter_context(s3_server(folder))
            store.bucket(_BUCKET)
            url = opened.enter_context(_service(folder, store))
            spark = opened.enter_context(_spark(python, folder, url, store, given.out))
            tests = unpacked(folder / "tests", archive(python), url, store, spark)
            environment = _environment(tests, url, store, given.planning)
            _provision(python, tests, environment, given.out)
            outcome = outcome_of(_run(python, tests, environment, given.tests, given.out), known(given.planning))
    except MissingTool as error:
        say(str(error))
        return 1
    print(summary(outcome), flush=True)
    return 1 if outcome.failed or outcome.surprises else 0


def known(planning: str) -> dict[str, str]:
    """Return why tests cannot pass, by patterns of their names; ``planning``: who plans scans."""
    found: dict[str, str] = {}
    for group in tomllib.loads(KNOWN.read_text("utf-8"))["group"]:
        if group.get("planning", planning) == planning:
            found |= dict.fromkeys(group["tests"], group["reason"])
    return found


def _environment(tests: Path, url: str, store: S3Server, planning: str) -> dict[str, str]:
    """Return the environment of the tests, with the catalogs that they look for there."""
    catalogs = {
        "LOCAL__SCAN_PLANNING_MODE": "server" if planning == "service" else "client",
        "SERVICE__TYPE": "rest",
        "SERVICE__URI": f"{url}/iceberg",
    }
    return {
        **os.environ,
        **_KEYS,
        **{f"PYICEBERG_CATALOG__{name}": value for name, value in catalogs.items()},
        "PYICEBERG_TEST_CATALOG": "service",
        "AWS_ENDPOINT_URL_S3": store.endpoint_url,
        "PYTHONPATH": str(tests),
    }


def archive(python: Path) -> Path:
    """Return pyiceberg's source archive, whose hash the lock has."""
    folder = ROOT / "build" / f"{NAME}-source"
    version = subprocess.run(
        [python, "-c", "import pyiceberg; print(pyiceberg.__version__)"], check=True, capture_output=True, text=True
    ).stdout.strip()
    found = folder / f"pyiceberg-{version}.tar.gz"
    if not found.exists():
        say(f"fetching {found.name}")
        words = ["--no-deps", "--no-binary", "pyiceberg", f"pyiceberg=={version}", "--dest", str(folder)]
        command = [str(python), "-m", "pip", "--disable-pip-version-check", "--quiet", "download", *words]
        if subprocess.run(command, check=False, stdout=sys.stderr).returncode:
            raise MissingTool(f"{found.name} cannot be fetched")
    if hashlib.sha256(found.read_bytes()).hexdigest() not in LOCK.read_text("utf-8"):
        raise MissingTool(f"{found} is not what {LOCK.name} names")
    return found


def unpacked(folder: Path, source: Path, url: str, store: S3Server, spark: int) -> Path:
    """Return the folder of the tests, for these addresses."""
    catalog, s3 = (each.removeprefix("http://") for each in (url, store.endpoint_url))
    addresses = {
        "localhost:8181": f"{catalog}/iceberg",
        "localhost:9000": s3,
        "localhost:15002": f"127.0.0.1:{spark}",
        "catalogs.items()": '[("rest", catalogs["rest"])]',  # there is no Hive
    }
    with tarfile.open(source) as files:
        root = f"{source.name.removesuffix('.tar.gz')}/"
        members = [each for each in files if _WANTED.fullmatch(each.name.removeprefix(root))]
        files.extractall(folder, members, filter="data")
    found = folder / root
    for path in (*found.rglob("conftest.py"), *found.rglob("test_*.py"), found / "dev" / "provision.py"):
        text = path.read_text("utf-8")
        for theirs, ours in addresses.items():
            text = text.replace(theirs, ours)
        path.write_text(text, "utf-8")
    return found


def _service(folder: Path, store: S3Server) -> AbstractContextManager[str]:
    properties = {"s3.endpoint": store.endpoint_url, "s3.region": "us-east-1"}
    return serving(
        folder,
        warehouse=f"s3://{_BUCKET}/rest",
        catalog=f"sqlite:///{folder}/catalog.db",
        store_options={"s3": store.storage_options},
        iceberg_properties=properties,
    )


@contextmanager
def _spark(python: Path, folder: Path, url: str, store: S3Server, out: Path) -> Iterator[int]:
    """Yield the port of a Spark Connect server with the service as its default catalog ``rest``."""
    catalog = {
        "": "org.apache.iceberg.spark.SparkCatalog",
        ".type": "rest",
        ".uri": f"{url}/iceberg",
        ".io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
        ".s3.endpoint": store.endpoint_url,
        ".s3.path-style-access": "true",
        ".cache-enabled": "false",
    }
    settings = {
        **{f"spark.sql.catalog.rest{name}": value for name, value in catalog.items()},
        "spark.jars.packages": _RUNTIME,
        "spark.jars.ivy": str(ROOT / "build" / "ivy"),
        "spark.sql.defaultCatalog": "rest",
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.ansi.enabled": "false",
        "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port := free_port()),
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.shuffle.partitions": "2",
        "spark.ui.enabled": "false",
        "spark.sql.warehouse.dir": str(folder / "spark-warehouse"),
    }
    environment = os.environ | _KEYS | {"PYSPARK_PYTHON": str(python), "SPARK_LOCAL_IP": "127.0.0.1"}
    with (
        (out / "spark.txt").open("wb") as log,
        subprocess.Popen(
            [python, ROOT / "scripts" / "foreign" / "pyiceberg_spark.py"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env=environment,
            cwd=folder,
        ) as server,
    ):
        given, said = cast("IO[str]", server.stdin), cast("IO[str]", server.stdout)
        try:
            given.write(json.dumps(settings) + "\n")
            given.flush()
            if "serving\n" not in said:
                raise MissingTool(f"Spark did not start: see {out / 'spark.txt'}")
            yield port
        finally:
            given.close()
            server.wait(timeout=60)


def _provision(python: Path, tests: Path, environment: dict[str, str], out: Path) -> None:
    say("making the tables of the tests")
    with (out / "provision.txt").open("wb") as output:
        done = subprocess.run(
            [python, "-W", "ignore", tests / "dev" / "provision.py"],
            check=False,
            stdout=output,
            stderr=output,
            env=environment,
            cwd=tests,
            timeout=_LIMIT_S,
        )
    if done.returncode:
        raise SystemExit(f"the tables of the tests could not be made: see {out / 'provision.txt'}")


def _run(python: Path, tests: Path, environment: dict[str, str], chosen: Sequence[str], out: Path) -> Path:
    say("running the tests")
    report = out / "junit.xml"
    options = [
        "-m",
        "integration",
        "-k",
        _LEFT_OUT,
        "-q",
        "-p",
        "no:cacheprovider",
        "--tb=short",
        f"--junit-xml={report}",
    ]
    with (out / "output.txt").open("wb") as output:
        subprocess.run(
            [python, "-m", "pytest", *options, *(chosen or ["tests/integration"])],
            check=False,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
            cwd=tests,
            timeout=_LIMIT_S,
        )
    if not report.exists():
        raise SystemExit(f"the tests did not run: see {out / 'output.txt'}")
    return report


def outcome_of(report: Path, reasons: dict[str, str]) -> Outcome:
    """Return the outcome of each test in a report; ``reasons``: why some cannot pass, by patterns of their names."""
    found = Outcome([], {}, {}, {}, [])
    for case in ElementTree.parse(report).iter("testcase"):  # noqa: S314  # the report of our own run
        name = f"{case.get('classname', '').removeprefix('tests.integration.')}::{case.get('name', '')}"
        reason = next((why for pattern, why in reasons.items() if fnmatchcase(name, pattern)), None)
        failure = next((each for each in case if each.tag in ("failure", "error")), None)
        skipped = case.find("skipped")
        if failure is not None and reason is not None:
            found.known[name] = reason
        elif failure is not None:
            found.failed[name] = " ".join((failure.get("message") or "").split())[:300]
        elif skipped is not None:
            found.skipped[name] = skipped.get("message") or ""
        else:
            found.passed.append(name)
            if reason is not None:
                found.surprises.append(name)
    if not found.passed:
        raise SystemExit(f"no test passed: see {report}")
    return found


def summary(outcome: Outcome) -> str:
    """Return the counts, the reasons of what did not pass with theirs, and each failure."""
    counts: dict[str, int] = {}
    for reason in outcome.known.values():
        counts[reason] = counts.get(reason, 0) + 1
    lines = [
        f"passed {len(outcome.passed)}",
        f"cannot pass {len(outcome.known)}",
        *(f"  {count}: {reason}" for reason, count in counts.items()),
        f"skipped by the suite {len(outcome.skipped)}",
        f"other failures {len(outcome.failed)}",
        *(f"  {name}: {why}" for name, why in sorted(outcome.failed.items())),
        *(f"  {name}: passes, and {KNOWN.name} says that it cannot" for name in outcome.surprises),
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
