"""Programs with iceberg-go and iceberg-rust write and read tables; Lamella and they read the same rows of both."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from conftest import ROOT
from lamella.client.http import Lamella
from lamella.client.http.client import Table
from support.guarded_s3 import GuardedS3, GuardedService
from support.tenants import ROOT_KEY

pytestmark = [pytest.mark.soak, pytest.mark.process]

_CLIENTS: Final = Path(__file__).with_name("clients")
_BUILD_S: Final = 3_600
_RUN_S: Final = 300
_AWS: Final = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")

#: What the Go program leaves: after appends, a new and a renamed column, a deletion, an overwrite and a transaction.
_FROM_GO: Final = [
    *((1, "one", None), (2, None, None), (4, "vier", 4.0), (5, "five", None)),
    *((6, "six", 6.5), (7, "seven", None)),
]
#: What the Rust program leaves: after appends, and one with a new column.
_FROM_RUST: Final = [(1, "one", None), (2, None, None), (3, "three", None), (4, "four", 4.5)]


@pytest.fixture(scope="module")
def go_client() -> Path:
    """The program with iceberg-go, which Go's client of the module proxy fetches."""
    program = ROOT / "build" / "go-client"
    go = shutil.which("go") or "/usr/local/go/bin/go"
    _build([go, "build", "-o", str(program), "."], _CLIENTS / "go")
    return program


@pytest.fixture(scope="module")
def rust_client() -> Path:
    """The program with iceberg-rust, which Cargo fetches; the first time takes many minutes."""
    folder = ROOT / "build" / "rust-client"
    _build(["cargo", "build", "--locked", "--target-dir", str(folder)], _CLIENTS / "rust")
    return folder / "debug" / "rust-client"


def _build(command: list[str], folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=_BUILD_S, check=False)
    assert done.returncode == 0, done.stderr[-4_000:]


def run(program: Path, url: str, what: str, namespace: str, **environment: str) -> list[str]:
    """The lines that the program prints: the table's rows."""
    given = {name: value for name, value in os.environ.items() if name not in _AWS}
    done = subprocess.run(
        [program, f"{url}/iceberg", what, namespace],
        capture_output=True,
        text=True,
        timeout=_RUN_S,
        check=False,
        env=given | environment,
    )
    assert done.returncode == 0, done.stderr[-4_000:]
    return done.stdout.splitlines()


def check_both_sides(
    table: Table,
    wanted: list[tuple[int, str | None, float | None]],
    run_client: Callable[[str], list[str]],
    **reads: Any,
) -> None:
    """The client prints the rows that Lamella reads, before and after Lamella appends one."""
    assert run_client("write") == _lines(wanted)
    rows = table.scan(columns=["id", "name", "price"], **reads).to_arrow().sort_by("id")
    assert [tuple(row.values()) for row in rows.to_pylist()] == wanted
    for entry in table.snapshots():
        assert not table.snapshot(entry.snapshot_id).properties.get("lamella.source.unread")
    table.append({"id": [8], "name": ["by lamella"], "price": [0.5]}, **reads)
    assert run_client("read") == _lines([*wanted, (8, "by lamella", 0.5)])


def _lines(rows: list[tuple[int, str | None, float | None]]) -> list[str]:
    return [" ".join("null" if cell is None else str(cell).removesuffix(".0") for cell in row) for row in rows]


def test_iceberg_go_writes_and_reads(go_client: Path, rest_url: str, lake: Lamella) -> None:
    """Two tables, commits of all its kinds, a view; scans that it plans, and that the service plans."""
    check_both_sides(lake.table("go.from_go"), _FROM_GO, lambda what: run(go_client, rest_url, what, "go"))


def test_iceberg_go_works_with_credentials_of_the_service(
    go_client: Path, guarded_service: Callable[..., GuardedService], guarded: GuardedS3
) -> None:
    """It asks for them by itself; it has none of its own, and S3 denies what they do not allow."""
    service = guarded_service(iceberg_role_arn=guarded.role_arn, iceberg_sts_url=guarded.endpoint_url)
    url = service.server.url
    keys = {"write": ROOT_KEY, "read": service.reader}  # a table's name is changed by its admin
    with Lamella(url, token=ROOT_KEY) as lake:
        check_both_sides(
            lake.table("sales.from_go"),
            _FROM_GO,
            lambda what: run(go_client, url, what, "sales", LAMELLA_TOKEN=keys[what]),
            storage_options=json.loads(guarded.store_options),
        )


def test_iceberg_rust_writes_and_reads(rust_client: Path, rest_url: str, lake: Lamella) -> None:
    """By SQL of DataFusion, and a new column between appends."""
    check_both_sides(lake.table("rust.from_rust"), _FROM_RUST, lambda what: run(rust_client, rest_url, what, "rust"))
