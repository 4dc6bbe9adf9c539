"""The size and shape of a checkout, and how many of its files a request runs through.

    python scripts/house.py [CHECKOUT] [--journeys] [--seconds check test] [--json]

Run it once for each checkout that is compared. ``--journeys`` also carries out requests, a job and a Spark query in
this process, so it needs the Python of the checkout (``CHECKOUT/.venv/bin/python``), and counts the product's files
that run in each. ``--seconds`` times targets of ``make``, which must succeed.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from graphlib import CycleError, TopologicalSorter
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import Any

#: Some requests are carried out so often, and the files that run each time are counted: what the service does a few
#: times a second, whether or not somebody asks, runs in most of them, but not in all.
REPEATS = 20
ROOT = Path(__file__).resolve().parent.parent
ROOTS = ("snapshot", "service", "client")
#: Generated pages.
GENERATED = re.compile(r"docs/(?:reference-|wrong-results|operators|licences|performance|sharpness|index-comparison)")


def modules_of(checkout: Path) -> dict[str, Path]:
    """Return the product's modules by name."""
    found = {}
    for root in ROOTS:
        for path in sorted((checkout / root).rglob("*.py")):
            parts = path.relative_to(checkout / root).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def import_graph(modules: dict[str, Path]) -> dict[str, set[str]]:
    """Return the modules that each module imports, including late and typing-only imports; re-exports count for their
    origin."""
    names: dict[str, list[str]] = {}
    passed_on: dict[str, dict[str, str]] = {}
    for module, path in modules.items():
        package = module if path.name == "__init__.py" else module.rpartition(".")[0]
        names[module] = []
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Import):
                names[module] += [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                base = ".".join(package.split(".")[: len(package.split(".")) - node.level + 1]) if node.level else ""
                source = ".".join(filter(None, (base, node.module)))
                names[module] += [f"{source}.{alias.name}" for alias in node.names]
        if path.name == "__init__.py":
            passed_on[module] = {name.rpartition(".")[2]: name for name in names[module]}

    def home(name: str) -> str | None:
        if name in modules:
            return name
        package, _, last = name.rpartition(".")
        target = passed_on.get(package, {}).get(last)
        if target is not None and target != name:
            return home(target)
        return package if package in modules else None

    return {
        module: {at for name in wanted if (at := home(name)) is not None and at != module}
        for module, wanted in names.items()
    }


def modules_in_cycles(graph: dict[str, set[str]]) -> int:
    """Return how many modules must be removed, one after another, until there is no import cycle."""
    left = {module: set(wanted) for module, wanted in graph.items()}
    taken = 0
    while True:
        try:
            TopologicalSorter(left).prepare()
        except CycleError as error:
            inside = set(error.args[1])
            out = max(inside, key=lambda module: len(left[module] & inside))
            left = {module: wanted - {out} for module, wanted in left.items() if module != out}
            taken += 1
        else:
            return taken


def lines_of(paths: Iterator[Path] | list[Path]) -> int:
    return sum(path.read_text("utf-8").count("\n") for path in paths)


def shape(checkout: Path) -> dict[str, int]:
    """Return figures computed from the files."""
    modules = modules_of(checkout)
    graph = import_graph(modules)
    imported = Counter(module for wanted in graph.values() for module in wanted)
    sizes = [lines_of([path]) for path in modules.values()]
    tests = sorted((checkout / "tests").rglob("*.py"))
    pages = [
        page
        for page in [*checkout.glob("*.md"), *sorted((checkout / "docs").rglob("*.md"))]
        if page.name != "CHANGELOG.md"
        and "decisions" not in page.parts
        and not GENERATED.match(page.relative_to(checkout).as_posix())
    ]
    return {
        "lines of product": sum(sizes),
        "modules": len(modules),
        "median lines of a module": round(statistics.median(size for size in sizes if size > 3)),
        "modules that one other imports": sum(imported[module] == 1 for module in modules),
        "modules to take out until none import each other": modules_in_cycles(graph),
        "lines of tests": lines_of(tests),
        "test functions": sum(
            isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
            for path in tests
            for node in ast.walk(ast.parse(path.read_text("utf-8")))
        ),
        "words of README.md": len((checkout / "README.md").read_text("utf-8").split()),
        "words of docs, but generated pages and decisions": sum(len(page.read_text("utf-8").split()) for page in pages),
    }


class FilesRun:
    """Records the files whose functions are called, in this thread and in threads that start later."""

    def __init__(self) -> None:
        self._seen: set[str] | None = None

    def install(self) -> None:
        threading.setprofile(self._note)
        sys.setprofile(self._note)

    def _note(self, frame: FrameType, event: str, _argument: Any) -> None:
        if event == "call" and self._seen is not None:
            self._seen.add(frame.f_code.co_filename)

    def during(self, work: Callable[[], Any]) -> set[str]:
        """Return the files that a piece of work runs through."""
        seen: set[str] = set()
        self._seen = seen
        try:
            work()
            time.sleep(0.2)  # work that continues after the answer
        finally:
            self._seen = None
        return seen


def first(*names: str) -> Any:
    """Return the first of these names that exists: modules have moved between revisions."""
    for name in names:
        module, _, attribute = name.rpartition(".")
        try:
            return getattr(import_module(module), attribute)
        except (ImportError, AttributeError):
            continue
    raise SystemExit(f"there is none of {', '.join(names)}")


@contextmanager
def service(warehouse: Path) -> Iterator[str]:
    """Yield the URL of a service in a thread of this process."""
    import uvicorn

    create_app = first("lamella.service.app.create_app")
    settings = first("lamella.service.config.settings.Settings", "lamella.service.settings.Settings")
    server = uvicorn.Server(uvicorn.Config(create_app(settings(warehouse=str(warehouse))), port=0, log_config=None))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            if not thread.is_alive():
                raise SystemExit("the service does not start")
            time.sleep(0.01)
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()


def request(url: str, method: str, body: Any = None) -> None:
    """Send one HTTP request, which must succeed."""
    data = None if body is None else json.dumps(body).encode()
    http_request = urllib.request.Request(url, data, {"Content-Type": "application/json"}, method=method)  # noqa: S310
    with urllib.request.urlopen(http_request) as answer:  # noqa: S310  # of the service above
        answer.read()


def journeys(checkout: Path) -> dict[str, int]:
    """Return the files that requests run through, for a service in this process, and the files of a local job."""
    import pyarrow as pa
    import pyarrow.parquet as pq
    from click.testing import CliRunner

    product = tuple(f"{checkout.resolve() / root}/" for root in ROOTS)
    files = FilesRun()
    files.install()
    found: dict[str, int] = {}

    def count(name: str, work: Callable[[], Any], repeats: int = 1) -> None:
        seen = set.intersection(*(files.during(work) for _ in range(repeats)))
        found[f"files of {name}"] = sum(file.startswith(product) for file in seen)

    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "data"
        data.mkdir()
        for number in range(8):
            rows = {"a": list(range(number, 800, 8)), "b": [f"t{number}"] * 100}
            pq.write_table(pa.table(rows), data / f"{number}.parquet")
        with service(Path(folder) / "warehouse") as url:
            table = f"{url}/v1/namespaces/n/tables/t"
            pruned = {"filter": "a > 5 AND b = 't3'"}
            columns = [{"name": "a", "type": "int64"}, {"name": "b", "type": "string"}]
            request(f"{url}/v1/namespaces", "POST", {"name": "n"})
            request(f"{url}/v1/namespaces/n/tables", "POST", {"name": "t", "schema": columns})
            count("register", lambda: request(f"{table}/register", "POST", {"paths": [f"file://{data}"]}))
            request(f"{table}/prune", "POST", pruned)
            count("a warm prune", lambda: request(f"{table}/prune", "POST", pruned), REPEATS)
            request(table, "GET")
            count("GET table", lambda: request(table, "GET"), REPEATS)
            request(f"{table}/cluster-key", "PUT", {"columns": ["a"], "kind": "linear"})
            command = first("lamella.client.cli.app.cli", "lamella.client.cli.cli")

            def recluster() -> None:
                done = CliRunner().invoke(command, ["recluster", "n.t", "--url", url])
                if done.exit_code != 0:
                    raise SystemExit(f"{done.output}{done.exception}")

            count("lamella recluster, with the service's", recluster)
            with spark_session(Path(folder) / "spark") as spark:
                first("lamella.client.spark.attach")(spark, "lake", url)

                def query() -> None:
                    spark.sql("SELECT count(*) FROM lake.n.t WHERE a > 5").collect()

                query()
                count("a Spark query, with the service's", query)
    return found


@contextmanager
def spark_session(folder: Path) -> Iterator[Any]:
    """Yield a local Spark session."""
    from pyspark.sql import SparkSession

    found = subprocess.run(
        [sys.executable, ROOT / "scripts" / "java_home.py"], check=True, capture_output=True, text=True
    )
    os.environ.update(JAVA_HOME=found.stdout.strip(), SPARK_LOCAL_IP="127.0.0.1", PYSPARK_PYTHON=sys.executable)
    builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.sql.warehouse.dir", str(folder)).getOrCreate()
    try:
        yield spark
    finally:
        spark.stop()


def seconds_of(checkout: Path, target: str) -> int:
    """Return how long a target of ``make`` takes, in seconds. The machine should be quiet."""
    begin = time.monotonic()
    subprocess.run(["make", target], check=True, cwd=checkout, stdout=sys.stderr)
    return round(time.monotonic() - begin)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", type=Path, nargs="?", default=ROOT)
    parser.add_argument("--journeys", action="store_true", help="also carry out requests, and count the files that run")
    parser.add_argument("--seconds", nargs="*", default=[], metavar="TARGET", help="also time targets of make")
    parser.add_argument("--json", action="store_true", help="write JSON")
    options = parser.parse_args()
    figures = shape(options.checkout)
    if options.journeys:
        figures |= journeys(options.checkout)
    for target in options.seconds:
        figures[f"seconds of make {target}"] = seconds_of(options.checkout, target)
    if options.json:
        print(json.dumps(figures, indent=1))
    else:
        for name, figure in figures.items():
            print(f"{figure:>10,}  {name}")


if __name__ == "__main__":
    main()
