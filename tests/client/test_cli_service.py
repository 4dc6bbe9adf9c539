"""``lamella config`` and ``lamella catalog``: what they print, where, and with which exit status."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from lamella.client.cli.app import cli
from lamella.service.app import create_app
from lamella.service.catalog.migrate import migrate_catalog
from lamella.service.config.settings import ENV_PREFIX, Settings
from support.app_client import AppClient
from support.service_api import parquet_bytes

LOOPBACK = ("127.0.0.1", 50_000)
#: Runs a command with this test's warehouse.
Run = Callable[..., Result]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """No variable of the machine has a say."""
    for name in list(os.environ):
        if name.upper().startswith(ENV_PREFIX):
            monkeypatch.delenv(name)
    monkeypatch.setenv("LAMELLA_WAREHOUSE", str(tmp_path / "w"))
    monkeypatch.setenv("LAMELLA_CATALOG", str(tmp_path / "c.db"))

    def invoke(*words: str, **options: Any) -> Result:
        result = CliRunner().invoke(cli, words, **options)
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        return result

    return invoke


@pytest.fixture
def with_table(tmp_path: Path) -> Path:
    """A warehouse with one table of one block; the folder of everything."""
    settings = Settings(warehouse=str(tmp_path / "w"), catalog=str(tmp_path / "c.db"), log_level="error")
    (tmp_path / "a.parquet").write_bytes(parquet_bytes({"a": [1, 2, 3]}))
    with AppClient(create_app(settings), client=LOOPBACK) as client:
        assert client.post("/v1/namespaces", json={"name": "db"}).status_code == 201
        body: dict[str, Any] = {"name": "t", "schema_from": f"file://{tmp_path}/a.parquet"}
        assert client.post("/v1/namespaces/db/tables", json=body).status_code == 201
        body = {"paths": [f"file://{tmp_path}/a.parquet"]}
        assert client.post("/v1/namespaces/db/tables/t/register", json=body).status_code == 200
    return tmp_path


def test_config_show_tells_every_setting_and_hides_secrets(run: Run, tmp_path: Path) -> None:
    """For people as a table, for programs as JSON; passwords in neither."""
    config = tmp_path / "lamella.toml"
    config.write_text('port = 9\ntoken_secret = "sixteen hush hush"')
    config.chmod(0o600)
    shown = json.loads(run("config", "show", "--config", str(config), "--json").stdout)
    found = {each["name"]: each for each in shown}
    assert list(found) == list(Settings.model_fields)
    assert (found["port"]["value"], found["port"]["origin"]) == ("9", f"file {config}")
    assert found["catalog"]["origin"] == "environment LAMELLA_CATALOG"
    text = run("config", "show", "--config", str(config), "--host", "::1")
    assert re.search(r"^host +::1 +option", text.stdout, re.MULTILINE)
    assert "hush" not in text.stdout + json.dumps(shown)


@pytest.mark.parametrize(
    ("words", "status", "expected"),
    [
        ((), 0, "a service would start"),
        (("--host", "192.0.2.1"), 1, "refusing to listen"),
        (("--port", "0"), 2, "--port: must be at least 1"),
        (("--config", "/no/such.toml"), 2, "/no/such.toml"),
    ],
)
def test_config_check_says_by_its_status_what_would_become_of_a_start(
    run: Run, words: tuple[str, ...], status: int, expected: str
) -> None:
    """0: it would start; 1: something is in the way; 2: the settings are none."""
    result = run("config", "check", *words)
    assert result.exit_code == status
    assert expected in result.output
    if status != 2:
        report = json.loads(run("config", "check", *words, "--json").stdout)
        assert report["is_usable"] is (status == 0)


def test_config_check_connects_on_request(run: Run, with_table: Path) -> None:
    """Then it tells the schema and that the warehouse answers."""
    assert "schema revision" not in run("config", "check").stdout
    result = run("config", "check", "--connect")
    assert result.exit_code == 0
    assert "info: catalog: sqlite, schema revision" in result.stdout
    assert "info: warehouse: it answers" in result.stdout
    (with_table / "c.db").write_bytes(b"nonsense" * 1000)
    assert run("config", "check", "--connect").exit_code == 1


def test_catalog_status_tells_the_schema_by_its_exit_status(run: Run, tmp_path: Path) -> None:
    """New and current ones are 0, one to be migrated is 1; nothing is made by asking."""
    assert run("catalog", "status").exit_code == 0
    assert not (tmp_path / "c.db").exists()
    migrate_catalog(str(tmp_path / "c.db"), to="0003", timeout_s=5)
    result = run("catalog", "status")
    assert result.exit_code == 1
    assert "0004" in result.stdout
    state = json.loads(run("catalog", "status", "--json").stdout)
    assert (state["backend"], state["revision"], state["pending"][0]["revision"]) == ("sqlite", "0003", "0004")
    assert run("catalog", "migrate").exit_code == 0
    assert "that of this release" in run("catalog", "status").stdout


def test_catalog_migrate_can_say_beforehand_what_it_would_do(run: Run, tmp_path: Path) -> None:
    """--dry-run and --sql change nothing; --to ends early; what is wrong is refused with a reason."""
    database = str(tmp_path / "c.db")
    migrate_catalog(database, to="0002", timeout_s=5)
    assert "would apply 0003" in run("catalog", "migrate", "--dry-run").stdout
    assert "ALTER TABLE tables ADD COLUMN doomed_at_ms" in run("catalog", "migrate", "--sql", "--to", "0003").stdout
    assert "0002" in run("catalog", "status").stdout
    done = json.loads(run("catalog", "migrate", "--to", "0003", "--json").stdout)
    assert (done["done"], [step["revision"] for step in done["steps"]]) == (True, ["0003"])
    refused = run("catalog", "migrate", "--to", "0001")
    assert refused.exit_code == 1
    assert "[invalid_request]" in refused.stderr
    assert run("catalog", "migrate", "--sql", "--json").exit_code == 2
    assert "applied 0004" in run("catalog", "migrate").stdout
    assert "nothing to do" in run("catalog", "migrate").stdout


def test_a_catalog_goes_out_and_comes_in(run: Run, with_table: Path) -> None:
    """Export, dry run, import elsewhere, verify; the file is the owner's alone, and no file is replaced."""
    file = with_table / "backup.gz"
    result = run("catalog", "export", str(file))
    assert result.exit_code == 0
    assert "schema revision" in result.stderr
    assert (file.stat().st_mode & 0o777, result.stdout) == (0o600, "")
    again = run("catalog", "export", str(file))
    assert again.exit_code == 1
    assert "[already_exists]" in again.stderr
    dry = run("catalog", "import", str(file), "--dry-run")
    assert dry.exit_code == 0
    assert "manifests of all 2 snapshots of 1 table exist" in dry.stdout
    other = str(with_table / "other.db")
    assert run("catalog", "import", str(file), "--catalog", other).exit_code == 0
    verified = run("catalog", "verify", "--catalog", other)
    assert verified.exit_code == 0
    assert "1 table, nothing is wrong" in verified.stdout
    refused = run("catalog", "import", str(file), "--catalog", other)
    assert refused.exit_code == 1
    assert "[conflict]" in refused.stderr


def test_a_catalog_that_is_not_there_is_not_verified(run: Run, with_table: Path) -> None:
    """One whose name is mistyped is no sound catalog of no tables, and none is made."""
    missing = with_table / "catalgo.db"
    refused = run("catalog", "verify", "--catalog", str(missing))
    assert refused.exit_code == 1
    assert "[invalid_request]" in refused.stderr
    assert not missing.exists()


def test_a_catalog_goes_through_a_pipe(run: Run, with_table: Path) -> None:
    """`-` is stdout and stdin, and nothing else is written there."""
    out = run("catalog", "export", "-")
    assert out.exit_code == 0
    back = run("catalog", "import", "-", "--catalog", str(with_table / "o.db"), "--json", input=out.stdout_bytes)
    assert json.loads(back.stdout)["presence"]["gone"] == []
    assert run("catalog", "import", "-", "--dry-run").exit_code == 2


def test_what_an_export_points_at_and_is_gone_is_reported(run: Run, with_table: Path) -> None:
    """Of the table's past: status 0 and a note; the current snapshot: status 1, and verification fails too."""
    run("catalog", "export", str(with_table / "b"))
    first, current = sorted((with_table / "w").glob("*/_ss/*.json"))
    first.unlink()
    result = run("catalog", "import", str(with_table / "b"), "--catalog", str(with_table / "1.db"))
    assert result.exit_code == 0
    assert re.search(r"db\.t +1 snapshot of its past", result.stdout)
    current.unlink()
    result = run("catalog", "import", str(with_table / "b"), "--catalog", str(with_table / "2.db"))
    assert result.exit_code == 1
    assert "THE CURRENT ONE" in result.stdout
    assert run("catalog", "verify", "--catalog", str(with_table / "2.db")).exit_code == 1
    quiet = run("catalog", "import", str(with_table / "b"), "--catalog", str(with_table / "3.db"), "--no-look")
    assert quiet.exit_code == 0


def test_a_file_that_cannot_be_read_is_refused(run: Run, tmp_path: Path) -> None:
    """One that is not there, and one that is something else; no catalog is left behind in use."""
    assert "no file that can be read" in run("catalog", "import", str(tmp_path / "none")).stderr
    (tmp_path / "x").write_bytes(b"x")
    refused = run("catalog", "import", str(tmp_path / "x"))
    assert refused.exit_code == 1
    assert run("catalog", "export", str(tmp_path / "y")).exit_code == 1
    assert not (tmp_path / "y").exists()
