"""Test that the catalog can be restored: export it, import it elsewhere, verify it, and query both.

It takes the settings of the service from where the service has them (variables, LAMELLA_CONFIG), and asks the running
service at `--url`; where that wants a key, with the one of LAMELLA_TOKEN or LAMELLA_TOKEN_FILE, which has to read all
tables. What is restored goes into a SQLite file of its own, or an empty database at `--scratch-catalog`; a second
service over it listens on the loopback address meanwhile. Neither the catalog nor the warehouse is written to. Commits
go on: both are asked about the snapshots that the export has.

The exit status is 0 when nothing is missing, verification finds nothing, and all answers are the same.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lamella.client.http import Lamella
from lamella.client.http.credential import token_of
from lamella.client.http.results import PruneResult, python_value
from lamella.snapshot.errors import LamellaError, NotFound

_CLI = (sys.executable, "-m", "lamella.client.cli")
#: The second service has the settings of the running one, except that it listens locally and has no cache folder.
_SERVE = """
import sys
from lamella.service.process.server import serve
from lamella.service.config.sources import load_settings
settings = load_settings({"host": "127.0.0.1", "port": int(sys.argv[1]), "workers": 1, "drain_s": 0}).settings
serve(settings.model_copy(update={"tls_cert_file": None, "tls_key_file": None, "cache_dir": None}))
"""
_START_S = 120
_STOP_S = 60
#: Maximum number of columns of a table to query.
_COLUMNS = 8


class Drill:
    """One run. ``failures``: descriptions of what is wrong."""

    def __init__(self, folder: Path, scratch: str, options: argparse.Namespace) -> None:
        self._folder = folder
        self._options = options
        self._scratch = {**os.environ, "LAMELLA_CATALOG": scratch}
        self._scratch.pop("LAMELLA_CATALOG_FILE", None)
        self.failures: list[str] = []
        self.seconds: dict[str, float] = {}
        self.counts: dict[str, int] = {}

    def run(self) -> None:
        """Run all steps; steps that need a failed step are skipped."""
        file = str(self._folder / "catalog.jsonl.gz")
        with self._timed("export"):
            outcome = self._command("catalog", "export", file, env=dict(os.environ))
        if outcome is None:
            return
        self.counts["rows"] = sum(outcome["rows"].values())
        self.counts["bytes"] = Path(file).stat().st_size
        with self._timed("import"):
            outcome = self._command("catalog", "import", file, env=self._scratch)
        if outcome is None:
            return
        self.counts["snapshots"] = outcome["presence"]["snapshots"]
        self.failures += [f"{gone['table']}: snapshots are gone" for gone in outcome["presence"]["gone"]]
        with self._timed("verify"):
            verify = ["catalog", "verify"] + (["--no-files"] if self._options.no_files else [])
            verified = self._command(*verify, env=self._scratch)
        for table in verified or ():
            wrong = [finding for finding in table.get("findings", ()) if finding["severity"] != "info"]
            self.failures += [f"{table['table']}: {finding['code']}: {finding['message']}" for finding in wrong]
        token, token_file = token_of(os.environ)
        with (
            self._timed("compare"),
            self._second_service() as url,
            Lamella(self._options.url, token=token, token_file=token_file) as live,
            Lamella(url, token=token, token_file=token_file) as restored,
        ):
            try:
                self._compare(live, restored)
            except LamellaError as error:
                self.failures.append(f"compare: {error.code}: {error.message}")

    def _compare(self, live: Lamella, restored: Lamella) -> None:
        self.counts |= {"tables": 0, "questions": 0, "not asked": 0}
        for namespace in restored.namespaces():
            for name in restored.tables(namespace.name):
                self.counts["tables"] += 1
                self._compare_table(live, restored, f"{namespace.name}.{name}")

    def _compare_table(self, live: Lamella, restored: Lamella, name: str) -> None:
        snapshot_id = restored.table(name).info().snapshot_id
        columns = [column.name for column in restored.table(name).info().schema.columns if not column.fields]
        for question in _questions(restored, name, snapshot_id, columns[:_COLUMNS]):
            self.counts["questions"] += 1
            ours = restored.table(name).prune(question, snapshot_id=snapshot_id)
            try:
                theirs = live.table(name).prune(question, snapshot_id=snapshot_id)
            except NotFound:  # dropped since, or the snapshot expired: nothing to compare
                self.counts["not asked"] += 1
                continue
            if _blocks(ours) != _blocks(theirs):
                self.failures.append(f"{name}: other blocks for {question or 'no filter'}")

    def _command(self, *words: str, env: dict[str, str]) -> Any:
        """Return the outcome of a command as JSON; None when it failed completely."""
        done = subprocess.run(
            [*_CLI, *words, "--json"], check=False, stdin=subprocess.DEVNULL, capture_output=True, text=True, env=env
        )
        if done.returncode not in (0, 1) or not done.stdout.startswith(("{", "[")):
            self.failures.append(f"{' '.join(words)}: {done.stderr.strip()}")
            return None
        return json.loads(done.stdout)

    @contextmanager
    def _timed(self, step: str) -> Iterator[None]:
        began_s = time.monotonic()
        yield
        self.seconds[step] = round(time.monotonic() - began_s, 3)

    @contextmanager
    def _second_service(self) -> Iterator[str]:
        """Yield a service on the restored catalog."""
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        log = self._folder / "service.log"
        command = [sys.executable, "-c", _SERVE, str(port)]
        with log.open("wb") as output:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, env=self._scratch
            )
        try:
            _wait_listening(process, port, log)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait(_STOP_S)


def _blocks(answer: PruneResult) -> list[tuple[str, int, int, str]]:
    """Return the compared properties of each block."""
    return [(block.location, block.row_count, block.file_size, block.verdict) for block in answer.records()]


def _questions(lake: Lamella, name: str, snapshot_id: str, columns: list[str]) -> Iterator[str | None]:
    """Yield filters that prune some blocks: by nulls and by minima and maxima of columns."""
    yield None
    for column in columns:
        quoted = "`" + column.replace("`", "``") + "`"
        yield f"{quoted} IS NULL"
        try:
            extremes = [f"min({quoted})", f"max({quoted})"]
            answer = lake.table(name).aggregate(extremes, mode="bounded", snapshot_id=snapshot_id)
        except LamellaError:  # a column type without minima and maxima
            continue
        minimum, maximum = (
            _literal(python_value(kind.type, value.lower if minimum else value.upper))
            for kind, value, minimum in zip(answer.columns, answer.groups[0].values, (True, False), strict=True)
        )
        if minimum is not None:
            yield f"{quoted} <= {minimum}"
        if maximum is not None:
            yield f"{quoted} >= {maximum}"


def _literal(value: Any) -> str | None:
    """Return a value as SQL; None for types without a simple literal."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, str):
        return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
    if isinstance(value, dt.date) and not isinstance(value, dt.datetime):
        return f"DATE '{value.isoformat()}'"
    return None


def _wait_listening(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    give_up = time.monotonic() + _START_S
    while time.monotonic() < give_up and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=5).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    raise SystemExit(f"the service over what was restored did not start:\n{log.read_text(errors='replace')[-2000:]}")


def main(arguments: list[str]) -> int:
    """Run the drill and print the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", default=os.environ.get("LAMELLA_URL", "http://127.0.0.1:8181"), help="the service")
    parser.add_argument("--scratch-catalog", metavar="URL", help="an empty database; default: a SQLite file")
    parser.add_argument("--no-files", action="store_true", help="do not check the block files")
    parser.add_argument("--json", action="store_true", dest="as_json", help="write the outcome as JSON")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="lamella-drill-") as name:
        folder = Path(name)
        drill = Drill(folder, options.scratch_catalog or str(folder / "restored.db"), options)
        drill.run()
    if options.as_json:
        print(json.dumps({"seconds": drill.seconds, "counts": drill.counts, "failures": drill.failures}))
    else:
        print(", ".join(f"{step} {seconds} s" for step, seconds in drill.seconds.items()))
        print(", ".join(f"{count:,} {what}" for what, count in drill.counts.items()))
        for failure in drill.failures:
            print(f"FAILED: {failure}")
        print("the restore failed" if drill.failures else "the catalog can be restored")
    return 1 if drill.failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
