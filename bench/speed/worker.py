"""One engine and one size in a process of its own: ``python -m speed.worker JOB``, where the job is a JSON file.

Writes ``<out>.json`` (:class:`Outcome`) and ``<out>.npz``: the blocks kept for the first asking of each predicate.
"""

from __future__ import annotations

import gc
import sys
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
from synthetic import MODEL_VERSION

from speed.clock import Timing, cpu_s, median, peak_mb, rss_mb, summary, timed, with_helpers
from speed.engine import Engine, NotOffered, engine
from speed.questions import question

#: Maximum seconds for one predicate, however large the budget.
MAX_S: Final = 3.0


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """A job. ``budget_s``: for all questions together; the most expensive engines run each of them once."""

    engine: str
    folder: str
    count: int
    out: str
    predicates: tuple[str, ...]
    budget_s: float
    only_build: bool = False


class Outcome(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What came of it; ``not_run`` says why a predicate has no timing, ``why_not`` why none has.

    ``first_ms``: the first asking, after opening. ``not_offered``: predicates that the library cannot be asked.
    ``rss_mb`` is that of all processes of the engine, ``peak_mb`` of this one.
    """

    build_s: float = 0.0
    open_ms: float = 0.0
    open_cpu_ms: float = 0.0
    warm_up_ms: float = 0.0
    first_ms: dict[str, float] = {}
    rss_mb: float = 0.0
    peak_mb: float = 0.0
    timings: dict[str, Timing] = {}
    left: dict[str, int] = {}
    not_run: dict[str, str] = {}
    not_offered: dict[str, str] = {}
    versions: dict[str, str] = {}
    why_not: str = ""
    note: str = ""


def work(job: Job) -> Outcome:
    """Build, open, query."""
    try:
        made = engine(job.engine, Path(job.folder))
    except (NotOffered, ImportError) as error:
        return Outcome(why_not=f"not run: {error}")
    outcome = Outcome(versions=made.versions, note=made.note)
    outcome.build_s = _build(made, job)
    if job.only_build:
        return outcome
    gc.collect()
    idle = rss_mb()
    _, clock, cpu = timed(lambda: made.open(job.count))
    helpers: list[int] = list(getattr(made, "helpers", ()))
    busy = with_helpers(helpers)
    cpu += sum(map(cpu_s, helpers))  # they were started by opening
    outcome.open_ms, outcome.open_cpu_ms = round(clock * 1e3, 2), round(cpu * 1e3, 2)
    _, clock, _ = timed(made.warm_up)
    outcome.warm_up_ms = round(clock * 1e3, 2)
    selected: dict[str, Any] = {}  # arrays; np.savez has other keywords too
    share = job.budget_s / len(job.predicates)
    spent = 0.0
    for number, name in enumerate(job.predicates):
        if spent > job.budget_s * 1.5:
            outcome.not_run[name] = f"would take about {spent / number:.0f} s, over the budget"
            continue
        try:
            answer, clock, cpu = timed(partial(_query, made, name, 0), busy)
        except NotOffered as why:
            outcome.not_offered[name] = str(why)
            continue
        outcome.first_ms[name] = round(clock * 1e3, 2)
        found = made.block_numbers(answer)
        del answer
        selected[name] = np.asarray(found)
        outcome.left[name] = found if isinstance(found, int) else len(found)
        spent += clock
        if clock > share:  # no time for more
            outcome.timings[name] = summary([(clock, cpu)])
            continue
        again = partial(_query, made, name)
        min_calls = 1 if clock > share / 3 else 5
        timing = median(again, budget_s=min(share - clock, MAX_S), min_calls=min_calls, cpu=busy)
        outcome.timings[name] = timing
        spent += timing.p50_ms * timing.repeats / 1e3
    gc.collect()
    outcome.rss_mb = round(rss_mb() + sum(map(rss_mb, helpers)) - idle, 1)
    outcome.peak_mb = round(peak_mb(), 1)
    np.savez(f"{job.out}.npz", **selected)
    return outcome


def _build(made: Engine, job: Job) -> float:
    """Seconds that building the table took, now or when it was built."""
    note = Path(job.folder) / f"built-{job.engine.replace(' ', '-')}-model{MODEL_VERSION}-{job.count}"
    _, clock, _ = timed(lambda: made.build(job.count))
    if clock > 0.5 or not note.exists():
        note.write_text(f"{clock:.2f}")
    return float(note.read_text())


def _query(made: Engine, name: str, number: int) -> Any:
    return made.run(question(name, number))


def main() -> None:
    """Read the job, do it, write what came of it."""
    job = msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=Job)
    Path(f"{job.out}.json").write_bytes(msgspec.json.encode(work(job)))


if __name__ == "__main__":
    main()
