"""`lamella audit`, `prune-rates` and `health`: against a service, and what they print."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from fixtures_server import ServerProcess
from lamella.client import Lamella
from lamella.client.cli.app import cli
from lamella.client.cli.maintenance import print_health
from lamella.snapshot import wire


def test_the_commands_show_what_the_service_noted(server: ServerProcess, tmp_path: Path) -> None:
    """Changes stand in the trail, the refused among them; prunes in the rates, with what they skipped."""
    files = [tmp_path / f"{number}.parquet" for number in range(4)]
    for number, file in enumerate(files):
        pq.write_table(pa.table({"n": [number]}), file)
    with Lamella(server.url) as lake:
        lake.create_namespace("db")
        lake.create_table("db.t", schema_from=f"file://{files[0]}")
        lake.table("db.t").register([f"file://{file}" for file in files])
        lake.table("db.t").prune("n = 2")

    def run(*words: str) -> str:
        done = CliRunner().invoke(cli, [*words, "--url", server.url], env={"COLUMNS": "200"})
        assert done.exit_code == 0, done.output
        return done.output

    refused = CliRunner().invoke(cli, ["tables", "drop", "db.none", "--url", server.url])
    assert refused.exit_code == 1
    shown = run("audit", "--limit", "2")
    assert "drop_table" in shown
    assert "table_not_found" in shown
    assert "create_namespace" not in shown  # it is the oldest
    of_table = msgspec.json.decode(run("audit", "db.t", "--json"), type=wire.AuditList)
    assert [each.operation for each in of_table.entries] == ["register", "create_table"]
    assert "75.0" in run("prune-rates", "db.t")
    rates = msgspec.json.decode(run("prune-rates", "db.t", "--json"), type=wire.PruneRatesAnswer)
    assert (rates.total.prunes, rates.total.kept_blocks) == (1, 1)
    assert "the current one" in run("health", "db.t")
    health = msgspec.json.decode(run("health", "db.t", "--json"), type=wire.TableHealth)
    assert (health.block_count, health.small_blocks, health.commits_since, health.missing) == (4, 4, 0, {})


HEALTH = wire.TableHealth(
    table_id="t",
    snapshot_id="0192",
    timestamp_ms=1,
    measured_ms=2,
    block_count=1_234,
    small_blocks=5,
    cluster_key=("a",),
    average_depth=2.5,
    deletes_count=3,
    deleted_bytes=2_048,
    expired_snapshots=7,
    expired=wire.ExpiredBytes(snapshots=7, min_bytes=1_024, max_bytes=1_024),
)


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({}, ["the current one", "1,234", "2.50", "2.0 kB", "1.0 kB"]),
        ({"commits_since": 1}, ["snapshot 0192 (1 commit ago)"]),
        ({"commits_since": 12}, ["snapshot 0192 (12 commits ago)"]),
        ({"cluster_key": (), "average_depth": None}, ["no cluster key"]),
        ({"average_depth": None}, ["average depth", "unknown"]),
        ({"expired": None}, ["a clean-up frees", "unknown"]),
        ({"expired": wire.ExpiredBytes(snapshots=7, min_bytes=1_024, max_bytes=4_096)}, ["1.0 kB to 4.1 kB"]),
        ({"expired": wire.ExpiredBytes(snapshots=7, min_bytes=1_024, not_compared=3)}, ["1.0 kB or more"]),
        (
            {
                "findings": (
                    wire.HealthFinding(
                        code="retention",
                        severity="warn",
                        text="Too many.",
                        remedy=wire.HealthRemedy(kind="vacuum", arguments={"execute": True, "older_than": "7 d"}),
                    ),
                )
            },
            ["warn: Too many. Run: lamella job submit vacuum db.t --argument execute=true --argument 'older_than=7 d'"],
        ),
        ({"missing": {"small_blocks": "it is gone"}}, ["small_blocks could not be measured: it is gone"]),
    ],
)
def test_the_figures_are_printed_in_words(
    changes: dict[str, object], parts: list[str], capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of which snapshot they are, what is unknown, and limits as limits."""
    monkeypatch.setenv("COLUMNS", "200")
    print_health("db.t", msgspec.structs.replace(HEALTH, **changes))
    printed = "".join(capfd.readouterr())
    assert [part for part in parts if part not in printed] == []
