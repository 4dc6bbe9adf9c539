"""Which part of Lamella may import which: read from the source, so that a lazy import inside a function counts too."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import NamedTuple

import pytest

import house

ROOT = Path(__file__).resolve().parent.parent
CODE_ROOTS = ("snapshot", "service", "client")


class Forbidden(NamedTuple):
    """Modules in `part`, those in `exempt` left out, import nothing in `targets` but what is in `allowed`."""

    part: str
    targets: tuple[str, ...]
    allowed: tuple[str, ...] = ()
    exempt: tuple[str, ...] = ()


WEB_AND_SQL = ("fastapi", "starlette", "uvicorn", "pydantic", "pydantic_settings", "sqlalchemy", "alembic", "psycopg")
SPARK_PARTS = ("lamella.client.spark", "lamella.client.jobs")

#: Folders of the service that can be removed. Whatever they have in common is in the core.
OPTIONAL = ("advice", "backup", "dashboard", "iceberg", "sharing")
REGISTRY = "lamella.service.extensions"

RULES = (
    # The core is pure: no service, no client, no web framework, no database, no Spark, no terminal.
    Forbidden("lamella.snapshot", ("lamella.service", "lamella.client", "pyspark", "click", "rich", *WEB_AND_SQL)),
    Forbidden("lamella.service", ("lamella.client", "pyspark")),
    # Nobody is handed all parts of the service: see the module itself.
    Forbidden(
        "lamella.service",
        ("lamella.service.composition",),
        exempt=("lamella.service.composition", "lamella.service.app", REGISTRY),
    ),
    *(
        Forbidden("lamella.service", (f"lamella.service.{name}",), exempt=(f"lamella.service.{name}", REGISTRY))
        for name in OPTIONAL
    ),
    # Users install the client without the service, and outside the Spark parts without Spark.
    Forbidden("lamella.client", ("lamella.service", *WEB_AND_SQL)),
    Forbidden("lamella.client", ("pyspark",), exempt=SPARK_PARTS),
    # The HTTP client starts fast: of our own code it knows only what goes over the wire.
    Forbidden(
        "lamella.client.http",
        ("lamella", "sqlglot", "fsspec", "numpy"),
        allowed=(
            *(f"lamella.snapshot.{name}" for name in ("wire", "errors", "ids", "manifest", "schema", "stats")),
            "lamella.snapshot.html_tables",
            "lamella.snapshot.counts",
            "lamella.snapshot.near_names",  # of members of a dictionary, in errors
            "lamella.client.http",
            "lamella.client.filters",  # which loads what translates an expression when there is one
            # Only inside Table.scan, Table.append and the like, and for type checkers: see the test of what importing
            # the client loads.
            "lamella.client.scan",
            "lamella.client.presigned",
            "lamella.client.write",
            "lamella.client.jobs.delete.DeleteResult",
            "lamella.client.advice.aio",  # the methods of tables that ask for advice
            "lamella.client.advice.sync",
            "lamella.client.tracing",  # which loads nothing of ours but the errors
            "lamella.snapshot.storage.Store",
            "lamella.snapshot.expression.value_text",  # inside the picture of a table
        ),
    ),
    # Answers are made into tables of pyarrow on request.
    Forbidden("lamella.client.http", ("pyarrow",), exempt=("lamella.client.http.results",)),
    # Filters know nothing of those who send them.
    Forbidden("lamella.client.filters", ("lamella.client",), allowed=("lamella.client.filters",)),
    # Everything works without OpenTelemetry.
    Forbidden("lamella.snapshot", ("opentelemetry",), exempt=("lamella.snapshot.tracing",)),
    Forbidden("lamella.service", ("opentelemetry",), exempt=("lamella.service.telemetry.otel",)),
    Forbidden("lamella.client", ("opentelemetry",), exempt=("lamella.client.tracing", "lamella.client.http.tracing")),
    # The reader stands on the core, and translates the conditions of engines: whatever plans a scan is handed in.
    Forbidden("lamella.client.scan", ("lamella.client",), allowed=("lamella.client.scan", "lamella.client.filters")),
    # Spark imports every top-level module named pyspark_* when it looks for data sources.
    Forbidden("pyspark_lamella", ("lamella",), allowed=("lamella.client.spark",)),
)


def inside(name: str, packages: tuple[str, ...]) -> bool:
    """Whether a dotted name is one of the packages or lies in one."""
    return any(name == package or name.startswith(f"{package}.") for package in packages)


def module_name(path: Path, root: Path) -> str:
    """The dotted name of a source file below an import root."""
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(path: Path, module: str) -> Iterator[tuple[int, str]]:
    """Line and full dotted name of everything that a file imports, relative imports resolved."""
    package = module.split(".") if path.name == "__init__.py" else module.split(".")[:-1]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"), str(path))):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            source = ".".join([*base, *([node.module] if node.module else [])])
            yield from ((node.lineno, f"{source}.{alias.name}") for alias in node.names)


def violations(top: Path, rules: tuple[Forbidden, ...] = RULES) -> list[str]:
    """One line for each import below `top` that breaks a rule."""
    found: list[str] = []
    for root in (top / name for name in CODE_ROOTS):
        for path in sorted(root.rglob("*.py")):
            module = module_name(path, root)
            applying = [rule for rule in rules if inside(module, (rule.part,)) and not inside(module, rule.exempt)]
            for line, name in imports(path, module):
                broken = [r for r in applying if inside(name, r.targets) and not inside(name, r.allowed)]
                found.extend(f"{path.relative_to(top)}:{line}: {rule.part} imports {name}" for rule in broken)
    return found


def test_every_import_follows_the_arrows() -> None:
    """No module of the distribution imports against the dependency direction."""
    assert violations(ROOT) == []


@pytest.mark.parametrize(
    ("file", "source"),
    [
        ("snapshot/lamella/snapshot/prune/range.py", "import fastapi"),
        ("snapshot/lamella/snapshot/prune/range.py", "from lamella import client"),
        ("snapshot/lamella/snapshot/prune/range.py", "def f():\n    from pyspark.sql import DataFrame"),
        ("snapshot/lamella/snapshot/__init__.py", "from ..service import app"),
        ("snapshot/lamella/snapshot/ids.py", "from .. import service"),
        ("service/lamella/service/app.py", "import lamella.client.http"),
        ("service/lamella/service/app.py", "from lamella.service import dashboard"),
        ("service/lamella/service/prune/routes.py", "from lamella.service.composition import Core"),
        ("service/lamella/service/http/problem.py", "from lamella.service.iceberg.errors import iceberg_error"),
        ("service/lamella/service/dashboard/indexes.py", "from lamella.service.advice.advice import Advice"),
        ("client/lamella/client/cli.py", "from lamella.service.app import create_app"),
        ("client/lamella/client/cli.py", "import pyspark"),
        ("client/lamella/client/http/transport.py", "from lamella.snapshot.prune import pipeline"),
        ("client/lamella/client/http/__init__.py", "import pyarrow.dataset"),
        ("client/lamella/client/scan/scan.py", "from lamella.client.http import Table"),
        ("client/pyspark_lamella/__init__.py", "from lamella.snapshot import schema"),
    ],
)
def test_a_planted_violation_is_found(tmp_path: Path, file: str, source: str) -> None:
    """The check reports an import against the arrows wherever it stands and however it is written."""
    planted = tmp_path / file
    planted.parent.mkdir(parents=True)
    planted.write_text(source, encoding="utf-8")
    assert len(violations(tmp_path)) == 1


@pytest.mark.parametrize(
    ("file", "source"),
    [
        ("snapshot/lamella/snapshot/prune/range.py", "from lamella.snapshot import schema\nfrom . import verdict"),
        ("snapshot/lamella/snapshot/richness.py", "import richer\nfrom clickhouse import x"),
        ("service/lamella/service/app.py", "import fastapi\nfrom lamella.snapshot.prune import pipeline"),
        ("service/lamella/service/extensions.py", "from lamella.service.sharing import register"),
        ("service/lamella/service/iceberg/scans.py", "from lamella.service.iceberg.errors import iceberg_error"),
        ("client/lamella/client/spark/catalog.py", "import pyspark\nfrom lamella.snapshot import schema"),
        ("client/lamella/client/http/transport.py", "from lamella.snapshot import wire\nfrom .retry import backoff"),
        ("client/lamella/client/scan/scan.py", "import pyarrow\nfrom lamella.snapshot.row_filter import RowFilter"),
    ],
)
def test_an_allowed_import_is_not_reported(tmp_path: Path, file: str, source: str) -> None:
    """The check leaves alone what the arrows allow, and names that only look alike."""
    written = tmp_path / file
    written.parent.mkdir(parents=True)
    written.write_text(source, encoding="utf-8")
    assert violations(tmp_path) == []


def import_cycle(top: Path) -> list[str]:
    """Modules that import each other in a circle; empty: there are none."""
    try:
        TopologicalSorter(house.import_graph(house.modules_of(top))).prepare()
    except CycleError as error:
        cycle: list[str] = error.args[1]
        return cycle
    return []


def test_no_modules_import_each_other() -> None:
    """A reader can begin with the modules that import nothing and go on from there."""
    assert import_cycle(ROOT) == []


@pytest.mark.parametrize(
    "source",
    [
        "from lamella.snapshot.prune import b",
        "from lamella.snapshot.prune.b import B",
        "from lamella.snapshot.prune import B",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from .b import B",
        "def f():\n    import lamella.snapshot.prune.b",
    ],
    ids=["module", "name", "passed-on", "for-types", "late"],
)
def test_a_planted_cycle_is_found(tmp_path: Path, source: str) -> None:
    """Also one that is hidden from the interpreter."""
    folder = tmp_path / "snapshot/lamella/snapshot/prune"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("from lamella.snapshot.prune.b import B", encoding="utf-8")
    (folder / "a.py").write_text(source, encoding="utf-8")
    (folder / "b.py").write_text("class B: pass", encoding="utf-8")
    assert import_cycle(tmp_path) == []
    (folder / "b.py").write_text("from lamella.snapshot.prune.a import f\nclass B: pass", encoding="utf-8")
    assert set(import_cycle(tmp_path)) == {"lamella.snapshot.prune.a", "lamella.snapshot.prune.b"}


def test_modules_that_docstrings_name_are_there() -> None:
    """By their whole names or relative to the package, as imports are."""
    modules = house.modules_of(ROOT)
    missing = []
    for module, path in modules.items():
        package = module if path.name == "__init__.py" else module.rpartition(".")[0]
        names = re.findall(r":mod:`~?((?:lamella)?\.[\w.]+)`", path.read_text("utf-8"))
        missing += [
            f"{module}: {name}" for name in names if (package + name if name.startswith(".") else name) not in modules
        ]
    assert missing == []


def test_importing_the_http_client_loads_no_heavy_library() -> None:
    """A program that only asks over HTTP does not pay for Arrow, NumPy, the SQL parser, Spark or the service."""
    program = "import sys, lamella.client.http; print(*{name.partition('.')[0] for name in sys.modules})"
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    heavy = {"numpy", "pyarrow", "sqlglot", "fsspec", "pyspark", "pandas", *WEB_AND_SQL}
    assert heavy & set(done.stdout.split()) == set()
