"""Runs every engine at every size, one after another, each in its own process, and compares their answers."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
from synthetic import FILTERED_COLUMNS, Model

from speed.comparison import SelectedBlocks, compare
from speed.engine import ENGINES, FLOORS, MADE_BY, OURS, TRANSIENT
from speed.environments import OF_ENGINES, why_missing
from speed.questions import NAMES, question, truth
from speed.worker import Job, Outcome

#: Above this size only engines that work in memory run.
LARGEST_FOR_PEERS: Final = 1_000_000
_IN_MEMORY: Final = Path("/dev/shm")  # noqa: S108  # what is made there has a folder of its own, by tempfile
_BYTES_A_BLOCK: Final = 10_000  # of small real files
_GROWTH: Final = 1.2  # expected: linear, and something for memory that no longer fits caches


class Bench:
    """Runs workers; ``budget_s`` is what one engine may take at one size, to build its table and to be asked.

    A peer that takes longer is ended and is not asked at larger sizes.

    ``beside``: source trees of other states of Lamella by name; each is measured as one more engine.
    """

    def __init__(self, folder: Path, budget_s: float, beside: Mapping[str, Path] | None = None) -> None:
        self._folder = folder
        self._budget_s = budget_s
        self._beside = dict(beside or {})
        self._last: dict[str, tuple[int, float]] = {}  # by engine: its last size, and the seconds that it took there
        self._ended: dict[str, int] = {}  # by engine: the size at which it was ended

    def measure(self, count: int, engines: Sequence[str], predicates: Sequence[str] = NAMES) -> dict[str, Any]:
        """One size: outcomes by engine, with remarks on their answers.

        Raises:
            WrongAnswer: see :func:`speed.comparison.compare`.
        """
        model = Model(count, FILTERED_COLUMNS)
        truths = {name: truth(model, question(name, 0)) for name in predicates}
        del model  # the engines in their own processes need the memory
        outcomes: dict[str, Any] = {}
        answers: dict[str, dict[str, SelectedBlocks]] = {name: {} for name in predicates}
        names = [*engines, *self._beside] if "lamella" in engines else list(engines)
        for name in names:
            why_not = self._why_not(name, count)
            if why_not:
                outcomes[name] = {"not_run": f"not run: {why_not}"}
            else:
                outcome, selected = self._run(name, count, predicates)
                outcomes[name] = outcome
                for predicate, found in selected.items():
                    answers[predicate][name] = found
            _print(name, outcomes[name], predicates)
        for predicate in predicates:
            for name, remark in compare(answers[predicate], truths[predicate], predicate).items():
                if remark:
                    outcomes[name].setdefault("remarks", {})[predicate] = remark
        left = {name: len(found) for name, found in truths.items()}
        return {"blocks": count, "may_match": left, "engines": outcomes}

    def _why_not(self, name: str, count: int) -> str:
        if name in (*OURS, *FLOORS, *self._beside):
            return ""
        if count > LARGEST_FOR_PEERS:
            return "only in memory at this size"
        if self._ended.get(name, count) < count:
            return f"{self._ended[name]:,} blocks took it longer than the budget of {self._budget_s:,.0f} s"
        if name in self._last:
            size, seconds = self._last[name]
            expected = seconds * count / size * _GROWTH
            if expected > self._budget_s:
                return f"would take about {expected:,.0f} s (budget {self._budget_s:,.0f} s)"
        return why_missing(name)

    def _run(
        self, name: str, count: int, predicates: Sequence[str]
    ) -> tuple[dict[str, Any], dict[str, SelectedBlocks]]:
        scratch = _in_memory(count) if name in TRANSIENT else None
        with tempfile.TemporaryDirectory(prefix="lamella-bench-", dir=scratch) as temporary:
            job = Job(
                engine=name if name in ENGINES else "lamella",
                folder=str(self._folder),
                count=count,
                out=f"{temporary}/out",
                predicates=tuple(predicates),
                budget_s=self._budget_s / 3,
            )
            # what building leaves behind in memory must not be part of what is measured: another process does it
            build = msgspec.structs.replace(job, engine=MADE_BY.get(name, job.engine), only_build=True)
            built_s = 0.0
            for each in (job,) if name in TRANSIENT else (build, job):
                why = self._work(name, each, Path(temporary))
                if why:
                    return {"not_run": why}, {}
                outcome = msgspec.json.decode(Path(f"{temporary}/out.json").read_bytes(), type=Outcome)
                if outcome.why_not:
                    return {"not_run": outcome.why_not}, {}
                built_s = max(built_s, outcome.build_s)  # of the engine that makes the table
            with np.load(f"{temporary}/out.npz") as stored:
                selected: dict[str, SelectedBlocks] = {
                    key: int(stored[key]) if stored[key].ndim == 0 else stored[key] for key in stored.files
                }
        # what building cost when it was built, and asking each predicate once: all that grows with the size
        once = sum(outcome.first_ms.values()) / max(1, len(outcome.first_ms)) * len(predicates) / 1e3
        self._last[name] = (count, built_s + outcome.open_ms / 1e3 + once)
        return msgspec.to_builtins(outcome), selected

    def _work(self, name: str, job: Job, temporary: Path) -> str:
        """Run a job in a separate process; returns why it failed, empty on success."""
        file = temporary / "job.json"
        file.write_bytes(msgspec.json.encode(job))
        environment = OF_ENGINES.get(name) if job.engine == name else None
        python = str(environment.interpreter) if environment else sys.executable
        is_peer = name not in (*OURS, *FLOORS, *self._beside)
        try:
            done = _ended_in(
                [python, "-m", "speed.worker", str(file)],
                temporary,
                self._environment(name),
                self._budget_s if is_peer else None,
            )
        except subprocess.TimeoutExpired:
            self._ended[name] = job.count
            what = "building its table" if job.only_build else "answering"
            return f"not run: {what} took longer than the budget of {self._budget_s:,.0f} s"
        if not done.returncode:
            return ""
        if not is_peer:
            raise RuntimeError(f"{name}: {done.stderr.strip()[-2_000:]}")
        return f"failed: {failure(done.stderr) or f'the process ended with {done.returncode}'}"

    def _environment(self, name: str) -> dict[str, str]:
        paths = [str(Path(__file__).parents[1])]
        if name in self._beside:
            paths += [str(self._beside[name] / part) for part in ("snapshot", "service", "client")]
        given = os.environ.get("PYTHONPATH")
        # Spark must not depend on how this host's name resolves
        return {
            "SPARK_LOCAL_IP": "127.0.0.1",
            **os.environ,
            "PYTHONPATH": os.pathsep.join([*paths, *([given] if given else [])]),
        }


def failure(said: str) -> str:
    """The line of what a process wrote that names its last exception, or its last line; no more than 200 characters."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    named = [line for line in lines if re.match(r"(\w+\.)*\w*(Error|Exception|Offered)\b", line)]
    return "".join((named or lines)[-1:])[:200]


def _in_memory(count: int) -> Path | None:
    """A folder in memory, if a table of real blocks needs no more than a third of what is free."""
    if not os.access(_IN_MEMORY, os.W_OK):
        return None
    available = next(line for line in Path("/proc/meminfo").read_text().splitlines() if line.startswith("MemAvailable"))
    free = min(shutil.disk_usage(_IN_MEMORY).free, int(available.split()[1]) << 10)
    return _IN_MEMORY if count * _BYTES_A_BLOCK * 3 < free else None


def _ended_in(
    command: list[str], folder: Path, environment: dict[str, str], seconds: float | None
) -> subprocess.CompletedProcess[str]:
    """Run a command and what it starts, and end all of it if it takes longer.

    Raises:
        subprocess.TimeoutExpired: it took longer, and was ended.
    """
    with (folder / "said").open("w+", errors="replace") as said:
        process = subprocess.Popen(
            command, cwd=folder, env=environment, stdout=said, stderr=said, start_new_session=True
        )
        try:
            process.wait(seconds)
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise
        said.seek(0)
        return subprocess.CompletedProcess(command, process.returncode, stderr=said.read())


def _print(name: str, outcome: dict[str, Any], predicates: Sequence[str]) -> None:
    if "timings" not in outcome:
        print(f"  {name:<24}{outcome['not_run']}", flush=True)
        return
    cells = []
    for predicate in predicates:
        timing = outcome["timings"].get(predicate)
        absent = "no" if predicate in outcome.get("not_offered", {}) else "not run"
        cells.append(f"{timing['cpu_ms']:>11.3f}" if timing else f"{absent:>11}")
    print(f"  {name:<24}{''.join(cells)}", flush=True)
    versions = ", ".join(f"{library} {number}" for library, number in outcome.get("versions", {}).items())
    print(f"  {'':<24}{versions}", flush=True)
    for kind, said in (("not_run", "not run"), ("not_offered", "no")):
        for predicate, why in outcome.get(kind, {}).items():
            print(f"  {'':<24}{predicate} {said}: {why}", flush=True)
