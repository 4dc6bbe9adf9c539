"""Kill, freeze and cut off each part of a stack in turn, while clients commit, prune and run jobs (`make chaos`).

Says what failed and how, how long it took until nothing failed any more, and in the end whether anything that was
acknowledged is lost. The exit status is 0 when nothing is, and everything recovered without hands.
"""

import argparse
import itertools
import json
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import s3fs

from chaos.faults import FAULT_S, WAYS, faults
from chaos.ledger_check import LedgerCheck, check_ledger
from chaos.load import Load
from chaos.trial import Trial, attempt
from lamella.client.http import Lamella
from lamella.snapshot.schema import Column
from stack.supervisor import Stack
from stack.tools import ROOT, say

TABLE = "chaos.t"
_FILES_AT_ONCE = 4_000
#: Failed jobs are retried soon: faults come every quarter of a minute, and the end of the run waits for jobs.
_SETTINGS = {"LAMELLA_JOB_RETRY_MAX_S": "10"}


def main() -> int:
    """Run all faults, or the selected ones; returns the exit status."""
    given = _arguments()
    wanted = [fault for fault in faults() if not given.only or f"{fault.services[0]}:{fault.way}" in given.only]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with Stack(given.folder, with_moto=given.moto, cabled=True, settings=_SETTINGS) as stack:
        with Lamella(stack.url, token=stack.key) as lake:
            lake.create_namespace("chaos")
            lake.create_table(TABLE, schema=[Column(name="n", type="int64")])
        locations = files(stack)
        # The first commit adds thousands of files; no client should wait for that.
        load = Load(stack.url, stack.key, TABLE, itertools.chain([next(locations)], locations))
        trials = []
        with load:
            time.sleep(3)
            for fault in wanted:
                trials.append(attempt(stack, load, fault))
                say(progress_line(trials[-1]))
        ledger_check = check_ledger(stack, TABLE, load.ledger)
        if load.failures:
            say(f"a client failed: {load.failures[0]!r}")
    report = {"trials": msgspec.to_builtins(trials), "ledger_check": msgspec.to_builtins(ledger_check)}
    print(json.dumps(report) if given.json else table_of(trials, ledger_check))
    recovered = all(trial.recovered_s is not None for trial in trials)
    return 0 if recovered and ledger_check.is_clean and not load.failures else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    names = [f"{fault.services[0]}:{fault.way}" for fault in faults()]
    parser.add_argument("--only", action="append", metavar="PART:WAY", choices=names, help=", ".join(names))
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "chaos")
    parser.add_argument("--moto", action="store_true", help="moto as the S3 server, which forgets all when killed")
    parser.add_argument("--json", action="store_true", help="one line of JSON")
    return parser.parse_args()


def files(stack: Stack) -> Iterator[str]:
    """Yield locations of small files, each with one number; written many at a time, past the fault proxy."""
    store = s3fs.S3FileSystem(
        key="lamella",
        secret=(stack.folder / "secrets" / "store_password").read_text("utf-8"),
        endpoint_url=f"http://{stack.addresses.own['store']}:9000",
        client_kwargs={"region_name": "us-east-1"},
    )
    for first in itertools.count(0, _FILES_AT_ONCE):
        made = {}
        for number in range(first, first + _FILES_AT_ONCE):
            sink = pa.BufferOutputStream()
            pq.write_table(pa.table({"n": [number]}), sink)
            made[f"s3://lamella/data/{number:06}.parquet"] = sink.getvalue().to_pybytes()
        store.pipe(made)
        yield from made


def progress_line(trial: Trial) -> str:
    """Print a line of progress."""
    recovered = "did not recover" if trial.recovered_s is None else f"well {trial.recovered_s:.1f} s later"
    return f"{trial.what} {trial.way}: {_failures(trial)}; {recovered}"


def _failures(trial: Trial) -> str:
    parts = []
    for kind, failed in (("commits", trial.commits_failed), ("prunes", trial.prunes_failed)):
        parts += [f"{count} {kind}: {outcome}" for outcome, count in failed.items()]
    return "; ".join(parts) or "nothing fails"


def table_of(trials: list[Trial], ledger_check: LedgerCheck) -> str:
    """Return the results as a Markdown table; docs/operations.md sums it up."""
    lines = [
        "| what | how | what fails | longest time without a commit / a prune | after its end |",
        "|---|---|---|---|---|",
    ]
    for trial in trials:
        gaps = f"{trial.without_commits_s:.1f} s / {trial.without_prunes_s:.1f} s"
        after = "**does not recover**" if trial.recovered_s is None else f"{trial.recovered_s:.1f} s"
        lines.append(f"| {trial.what} | {trial.way} | {_failures(trial)} | {gaps} | {after} |")
    lines += ["", *(f"- {way}: {text.format(hold_s=FAULT_S)}" for way, text in WAYS.items()), ""]
    jobs = ", ".join(f"{count} {state}" for state, count in ledger_check.jobs.items())
    lines.append(
        f"{ledger_check.acknowledged} commits were acknowledged, {len(ledger_check.lost)} lost, "
        f"{len(ledger_check.twice)} there twice, {len(ledger_check.refused)} refused; "
        f"verification: {len(ledger_check.findings)} findings; jobs: {jobs}"
    )
    lines += [f"- WRONG: {each}" for each in ledger_check.wrong()]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
