"""Runs every engine at every size, one after another, each in its own process, and compares their answers."""

from __future__ import annotations

import os
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
from speed.engine import ENGINES, FLOORS, OURS
from speed.questions import NAMES, question, truth
from speed.worker import Job, Outcome

#: Above this size only engines that work in memory run.
LARGEST_FOR_PEERS: Final = 1_000_000
_GROWTH: Final = 1.2  # expected: linear, and something for memory that no longer fits caches


class Bench:
    """Runs workers; ``budget_s`` is what one engine may take at one size, to build its table and to be asked.

    ``beside``: source trees of other states of Lamella by name; each is measured as one more engine.
    """

    def __init__(self, folder: Path, budget_s: float, beside: Mapping[str, Path] | None = None) -> None:
        self._folder = folder
        self._budget_s = budget_s
        self._beside = dict(beside or {})
        self._last: dict[str, tuple[int, float]] = {}  # by engine: its last size, and the seconds that it took there

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
                outcomes[name] = {"not_run": why_not}
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
        if count > LARGEST_FOR_PEERS and name not in (*OURS, *FLOORS, *self._beside):
            return "not run: only in memory at this size"
        if name in self._last and name not in (*OURS, *FLOORS, *self._beside):
            size, seconds = self._last[name]
            expected = seconds * count / size * _GROWTH
            if expected > self._budget_s:
                return f"not run: would take about {expected:,.0f} s (budget {self._budget_s:,.0f} s)"
        return ""

    def _run(
        self, name: str, count: int, predicates: Sequence[str]
    ) -> tuple[dict[str, Any], dict[str, SelectedBlocks]]:
        with tempfile.TemporaryDirectory(prefix="lamella-bench-") as temporary:
            job = Job(
                engine=name if name in ENGINES else "lamella",
                folder=str(self._folder),
                count=count,
                out=f"{temporary}/out",
                predicates=tuple(predicates),
                budget_s=self._budget_s / 3,
            )
            # what building leaves behind in memory must not be part of what is measured: another process does it
            for only_build in (True, False):
                why = self._work(name, msgspec.structs.replace(job, only_build=only_build), Path(temporary))
                if why:
                    return {"not_run": f"failed: {why}"}, {}
            outcome = msgspec.json.decode(Path(f"{temporary}/out.json").read_bytes(), type=Outcome)
            if outcome.why_not:
                return {"not_run": outcome.why_not}, {}
            with np.load(f"{temporary}/out.npz") as stored:
                selected: dict[str, SelectedBlocks] = {
                    key: int(stored[key]) if stored[key].ndim == 0 else stored[key] for key in stored.files
                }
        # what building cost when it was built, and asking each predicate once: all that grows with the size
        once = sum(outcome.first_ms.values()) / max(1, len(outcome.first_ms)) * len(predicates) / 1e3
        self._last[name] = (count, outcome.build_s + outcome.open_ms / 1e3 + once)
        return msgspec.to_builtins(outcome), selected

    def _work(self, name: str, job: Job, temporary: Path) -> str:
        """Run a job in a separate process; returns why it failed, empty on success."""
        file = temporary / "job.json"
        file.write_bytes(msgspec.json.encode(job))
        command = [sys.executable, "-m", "speed.worker", str(file)]
        done = subprocess.run(command, cwd=temporary, env=self._environment(name), capture_output=True)
        if not done.returncode:
            return ""
        said = done.stderr.decode(errors="replace").strip()
        if name in OURS or name in self._beside:
            raise RuntimeError(f"{name}: {said[-2_000:]}")
        return "".join(said.splitlines()[-1:])[:200] or f"the process ended with {done.returncode}"

    def _environment(self, name: str) -> dict[str, str]:
        paths = [str(Path(__file__).parents[1])]
        if name in self._beside:
            paths += [str(self._beside[name] / part) for part in ("snapshot", "service", "client")]
        given = os.environ.get("PYTHONPATH")
        return {**os.environ, "PYTHONPATH": os.pathsep.join([*paths, *([given] if given else [])])}


def _print(name: str, outcome: dict[str, Any], predicates: Sequence[str]) -> None:
    if "timings" not in outcome:
        print(f"  {name:<24}{outcome['not_run']}", flush=True)
        return
    cells = []
    for predicate in predicates:
        timing = outcome["timings"].get(predicate)
        cells.append(f"{timing['cpu_ms']:>11.3f}" if timing else f"{'not run':>11}")
    print(f"  {name:<24}{''.join(cells)}", flush=True)
    for predicate, why in outcome.get("not_run", {}).items():
        print(f"  {'':<24}{predicate} not run: {why}", flush=True)
