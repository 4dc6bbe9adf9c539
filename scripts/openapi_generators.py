"""Generate clients from docs/openapi.json with common generators (`make openapi-clients`), and prune with one of them.

A generator that cannot read a part of the document leaves operations out, often without an error. Each one is asked
for a client; an operation of the document that this lacks is named, and the exit status is 1. With the client of
openapi-python-client a table is then created, filled and pruned over HTTP.

Installs the generators from PyPI and npm into `build/openapi-generators`. Needs a network the first time, Node.js for
the generators of npm, and Java for openapi-generator; what the machine lacks is said, and its generators are left out.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import venv
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from iceberg_rck import serving
from stack.tools import ROOT, say

DOCUMENT: Final = ROOT / "docs" / "openapi.json"
_FOLDER: Final = ROOT / "build" / "openapi-generators"
_OF_PYPI: Final = (
    "openapi-python-client==0.29.1",
    "openapi-generator-cli==7.26.0",
    "ruff",
    *("pydantic", "python-dateutil", "urllib3"),  # what the client of openapi-generator needs
)
_OF_NPM: Final = ("@hey-api/openapi-ts@0.95.0", "openapi-typescript@7.13.0", "orval@7.13.2", "typescript@5.9.3")
_LIMIT_S: Final = 600
_PRUNE: Final = """
import sys
from lamella_client import Client
from lamella_client.api.namespaces import create_namespace
from lamella_client.api.prune import prune, prune_batch
from lamella_client.api.tables import create_table
from lamella_client.api.blocks import register
from lamella_client.models import BatchRequest, CreateNamespace, CreateTable, PruneRequest, Register

url, *files = sys.argv[1:]
client = Client(base_url=url, raise_on_unexpected_status=True)
made = create_namespace.sync(client=client, body=CreateNamespace(name="db"))
assert made.name == "db", made
table = create_table.sync("db", client=client, body=CreateTable(name="t", schema_from=files[0]))
assert table.name == "t", table
done = register.sync("db", "t", client=client, body=Register(paths=files))
assert done.registered == len(files), done
answer = prune.sync("db", "t", client=client, body=PruneRequest(filter_="a >= 150"))
print(" ".join(sorted(block.location for block in answer.blocks)))
batch = prune_batch.sync("db", "t", client=client, body=BatchRequest(filters=["a < 0", "a >= 150"]))
assert len(batch.answers) == 2, batch
"""


class Generator(NamedTuple):
    """A generator of clients: the program that it needs, its command, and how an operation is told in what it writes.

    ``command``: given the document and a folder. ``named``: a pattern, of the path or the text of a file among
    ``files``.
    """

    name: str
    needs: str
    command: Callable[[Path, Path], list[str]]
    files: str
    named: Callable[[str], str]


def generators(folder: Path) -> list[Generator]:
    """Return all generators, as installed in a folder."""
    python, node = folder / "venv" / "bin", folder / "node_modules" / ".bin"
    of_openapi_generator = (str(python / "openapi-generator-cli"), "generate", "--generator-name", "python")
    return [
        Generator(
            "openapi-python-client",
            sys.executable,
            lambda document, out: [
                *(str(python / "openapi-python-client"), "generate", "--overwrite"),
                *("--path", str(document), "--output-path", str(out)),
            ],
            "lamella_client/api/*/*.py",
            lambda operation: rf"/{operation}\.py",
        ),
        Generator(
            "openapi-generator (python)",
            "java",
            lambda document, out: [*of_openapi_generator, "--input-spec", str(document), "--output", str(out)],
            "openapi_client/api/*.py",
            lambda operation: rf"def {operation}\(",
        ),
        Generator(
            "@hey-api/openapi-ts",
            "node",
            lambda document, out: [str(node / "openapi-ts"), "--input", str(document), "--output", str(out)],
            "sdk.gen.ts",
            lambda operation: rf"export const {_camel(operation)} =",
        ),
        Generator(
            "openapi-typescript",
            "node",
            lambda document, out: [str(node / "openapi-typescript"), str(document), "--output", str(out / "api.ts")],
            "api.ts",
            lambda operation: rf'operations\["{operation}"\]',
        ),
        Generator(
            "orval",
            "node",
            lambda document, out: [
                *(str(node / "orval"), "--input", str(document), "--output", str(out / "api.ts")),
                *("--client", "fetch"),
            ],
            "api.ts",
            lambda operation: rf"export const {_camel(operation)} =",
        ),
    ]


def main() -> int:
    """Install, generate, count and prune; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--document", type=Path, default=DOCUMENT, help="another document")
    given = parser.parse_args()
    install(_FOLDER)
    is_good = True
    with tempfile.TemporaryDirectory(prefix="lamella-clients-") as made:
        for number, generator in enumerate(generators(_FOLDER)):
            if shutil.which(generator.needs) is None:
                say(f"{generator.name}: left out, {generator.needs} is not there")
                continue
            out = Path(made) / str(number)
            lacking = omitted(generator, given.document, out)
            print(f"{generator.name}: {'nothing omitted' if not lacking else 'omitted: ' + ', '.join(lacking)}")
            is_good = is_good and not lacking
            if number == 0 and not lacking:
                prune(out, Path(made))
    return 0 if is_good else 1


def install(folder: Path) -> None:
    """Install the generators, each in an environment of its own."""
    python = folder / "venv" / "bin" / "python"
    if not python.exists():
        venv.create(folder / "venv", with_pip=True)
    _run([str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *_OF_PYPI])
    npm = shutil.which("npm")
    if npm is not None:
        _run([npm, "install", "--silent", "--no-audit", "--no-fund", "--prefix", str(folder), *_OF_NPM])


def omitted(generator: Generator, document: Path, out: Path) -> list[str]:
    """Return the operations that a generated client lacks; all operations when there is no client."""
    out.mkdir()
    path = f"{_FOLDER / 'venv' / 'bin'}{os.pathsep}{os.environ['PATH']}"
    done = _run(generator.command(document, out), env={**os.environ, "PATH": path}, is_checked=False)
    if done.returncode != 0:
        say(f"{generator.name}: {(done.stderr or done.stdout)[-1_000:]}")
    found = "\n".join(f"{file}\n{file.read_text('utf-8')}" for file in sorted(out.glob(generator.files)))
    paths = json.loads(document.read_text("utf-8"))["paths"].values()
    operations = [operation["operationId"] for methods in paths for operation in methods.values()]
    return [name for name in operations if not re.search(generator.named(name), found)]


def prune(client: Path, folder: Path) -> None:
    """Create, fill and prune a table with a generated client; raises SystemExit for a different answer."""
    files = [folder / f"{number}.parquet" for number in range(3)]
    for number, file in enumerate(files):
        pq.write_table(pa.table({"a": list(range(100 * number, 100 * number + 100))}), file)
    with serving(folder) as url:
        words = [str(_FOLDER / "venv" / "bin" / "python"), "-c", _PRUNE, url, *(f"file://{file}" for file in files)]
        done = _run(words, env={**os.environ, "PYTHONPATH": str(client)})
    selected = done.stdout.split()
    if [Path(location).name for location in selected] != ["1.parquet", "2.parquet"]:
        raise SystemExit(f"the generated client's prune kept {selected}")
    print("a prune with the generated client keeps the 2 blocks of 3 that may match")


def _camel(operation: str) -> str:
    first, *others = operation.split("_")
    return first + "".join(word.capitalize() for word in others)


def _run(
    words: list[str], *, env: dict[str, str] | None = None, is_checked: bool = True
) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(words, check=False, capture_output=True, text=True, timeout=_LIMIT_S, env=env)
    if is_checked and done.returncode != 0:
        raise SystemExit(f"{words[0]} ended with status {done.returncode}: {(done.stderr or done.stdout)[-2_000:]}")
    return done


if __name__ == "__main__":
    sys.exit(main())
