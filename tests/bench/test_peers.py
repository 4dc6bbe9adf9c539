"""Peers: where they run, what is said of one that cannot, and how a run goes on without it."""

from __future__ import annotations

import subprocess
import sys
import time
import types
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import peers
import pyarrow.compute as pc
import pytest
from speed import environments, pruning
from speed.clock import summary, timed, with_helpers
from speed.comparison import WrongAnswer, compare, remarks
from speed.engine import ENGINES, MADE_BY, OURS, PEERS, TRANSIENT, NotOffered
from speed.four_rows import ROWS, rows
from speed.pruning import Bench, failure
from speed.questions import NAMES, Question, question, truth
from speed.rendered import as_values
from speed.report import markdown
from speed.worker import Job, Outcome, work
from synthetic import FILTERED_COLUMNS, Model

FAKE = "speed.an_engine_of_tests"


class Counting:
    """Answers P1 exactly, cannot be asked P5, and keeps every block for anything else."""

    versions = {"counting": "3.1"}  # noqa: RUF012  # not changed
    note = "counts only"

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def build(self, count: int) -> None:
        """Nothing to make."""

    def open(self, count: int) -> None:
        """Take the model."""
        self._model = Model(count, FILTERED_COLUMNS)

    def warm_up(self) -> None:
        """Nothing to load."""

    def run(self, query: Question) -> Any:
        """A count."""
        if query.name == "P5":
            raise NotOffered("it has no text")
        return len(truth(self._model, query)) if query.name == "P1" else self._model.count

    def block_numbers(self, answer: Any) -> int:
        """The count."""
        return int(answer)


def job(engine: str, folder: Path) -> Job:
    """A job that asks everything of 500 blocks."""
    return Job(engine=engine, folder=str(folder), count=500, out=str(folder / "out"), predicates=NAMES, budget_s=2.0)


@pytest.fixture
def counting(monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of an engine that is there for one test."""
    module = types.ModuleType(FAKE)
    module.Counting = Counting  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, FAKE, module)
    monkeypatch.setitem(ENGINES, "counting", (FAKE, "Counting"))
    return "counting"


def test_what_a_library_does_not_offer_is_no_answer_and_the_others_go_on(counting: str, tmp_path: Path) -> None:
    """A predicate that is not offered has its reason and neither a time nor a count."""
    outcome = work(job(counting, tmp_path))
    assert outcome.not_offered == {"P5": "it has no text"}
    assert set(outcome.timings) == set(outcome.left) == set(NAMES) - {"P5"}
    assert outcome.versions == {"counting": "3.1"}


def test_a_missing_library_is_named_and_nothing_fails(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An engine whose module is not installed says which."""
    monkeypatch.setitem(ENGINES, "missing", ("speed.a_module_that_nobody_wrote", "Missing"))
    outcome = work(job("missing", tmp_path))
    assert outcome.why_not.startswith("not run: ")
    assert "a_module_that_nobody_wrote" in outcome.why_not


def test_every_engine_of_a_list_is_a_peer_and_every_lock_is_there() -> None:
    """Names in the lists of environments and tables are names of engines."""
    for name in (*environments.OF_ENGINES, *MADE_BY, *MADE_BY.values(), *TRANSIENT):
        assert name in PEERS
    for each in environments.ENVIRONMENTS:
        assert (environments.ROOT / each.lock).exists()
        assert "@" not in each.name
    for maker in MADE_BY.values():
        assert maker not in environments.OF_ENGINES, "tables are made in Lamella's environment"


def test_a_run_names_an_environment_that_is_not_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A peer without its environment is not run, with the reason that making it left, and the others are."""
    monkeypatch.setattr(environments, "FOLDER", tmp_path / "peers")
    found = Bench(tmp_path, budget_s=1.0).measure(1_000, ["numpy, two layers", "Databend"])
    assert "python bench/peers.py makes it" in found["engines"]["Databend"]["not_run"]
    assert set(found["engines"]["numpy, two layers"]["timings"]) == set(NAMES)
    environments.DATABEND.folder.mkdir(parents=True)
    environments.DATABEND.reason.write_text("needs Python 3.12 or newer, and none was found\n")
    again = Bench(tmp_path, budget_s=1.0).measure(1_000, ["Databend"])
    assert again["engines"]["Databend"]["not_run"] == "not run: needs Python 3.12 or newer, and none was found"


def test_an_environment_of_another_lock_is_not_the_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It counts as made only with the very lock of the repository."""
    monkeypatch.setattr(environments, "FOLDER", tmp_path)
    environment = environments.DUCKLAKE
    environment.folder.mkdir()
    lock = (environments.ROOT / environment.lock).read_bytes()
    environment.ready.write_bytes(lock + b"# of another day\n")
    assert not environment.is_made()
    environment.ready.write_bytes(lock)
    assert environment.is_made()
    assert environments.why_missing("DuckLake's extension") == ""


def test_a_python_is_found_or_named_as_missing() -> None:
    """This interpreter will do for its own version; none will do for one that does not exist."""
    assert peers.python_for(sys.version_info[:2]) == Path(sys.executable)
    with pytest.raises(peers.CannotMake, match=r"needs Python 3\.99 or newer"):
        peers.python_for((3, 99))


def test_what_cannot_be_installed_is_said_in_short() -> None:
    """A command that fails gives its last lines as the reason."""
    with pytest.raises(peers.CannotMake, match="no such thing"):
        peers._run([sys.executable, "-c", "import sys; print('x' * 900, file=sys.stderr); sys.exit('no such thing')"])


def test_a_run_over_its_budget_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    """The process and its child are gone when the time is up."""
    child = "import os, time; open('child', 'w').write(str(os.getpid())); time.sleep(600)"
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    with pytest.raises(subprocess.TimeoutExpired):
        pruning._ended_in([sys.executable, "-c", parent], tmp_path, {}, 3.0)
    pid = int((tmp_path / "child").read_text())
    state = Path(f"/proc/{pid}/stat")
    deadline = time.monotonic() + 60
    while state.exists() and state.read_text().rpartition(")")[2].split()[0] != "Z" and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not state.exists() or state.read_text().rpartition(")")[2].split()[0] == "Z"


def test_a_peer_that_was_ended_is_not_run_at_larger_sizes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What took too long once is named with the size, and not tried again."""
    started: list[int] = []

    def slow(command: list[str], *_: object) -> Any:
        started.append(len(command))
        raise subprocess.TimeoutExpired(command, 1.0)

    monkeypatch.setattr(pruning, "_ended_in", slow)
    bench = Bench(tmp_path, budget_s=1.0)
    first = bench.measure(1_000, ["pyiceberg"])["engines"]["pyiceberg"]["not_run"]
    second = bench.measure(2_000, ["pyiceberg"])["engines"]["pyiceberg"]["not_run"]
    assert first == "not run: building its table took longer than the budget of 1 s"
    assert second == "not run: 1,000 blocks took it longer than the budget of 1 s"
    assert len(started) == 1


def test_the_seconds_of_a_table_count_for_the_engine_that_reads_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """What the maker of a table took is expected of a larger size too, though its reader makes none."""

    def quick(command: list[str], *_: object) -> Any:
        given = msgspec.json.decode(Path(command[-1]).read_bytes(), type=Job)
        made = Outcome(build_s=90.0 if given.only_build else 0.0, timings={"P1": summary([(1.0, 1.0)])})
        Path(f"{given.out}.json").write_bytes(msgspec.json.encode(made))
        np.savez(f"{given.out}.npz")
        return subprocess.CompletedProcess(command, 0, stderr="")

    monkeypatch.setattr(pruning, "_ended_in", quick)
    monkeypatch.setattr(pruning, "why_missing", lambda _: "")
    bench = Bench(tmp_path, budget_s=100.0)
    bench.measure(1_000, ["Iceberg on Spark"])
    found = bench.measure(2_000, ["Iceberg on Spark"])["engines"]["Iceberg on Spark"]
    assert found["not_run"] == "not run: would take about 216 s (budget 100 s)"


def test_the_reason_of_a_failure_is_its_exception() -> None:
    """Of a traceback and what libraries write after it, the line of the exception is told."""
    said = "Traceback (most recent call last):\n  File x\npkg.SomeError: no table 't'\n\nLINE 1: SELECT\n        ^\n"
    assert failure(said) == "pkg.SomeError: no table 't'"
    assert failure("killed\n") == "killed"
    assert failure("") == ""
    assert len(failure("ValueError: " + "x" * 900)) == 200


def test_processor_time_of_helpers_counts() -> None:
    """A process that works for an engine adds its time to that of a call."""
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as busy:
        try:
            _, clock, cpu = timed(lambda: time.sleep(1.0), with_helpers([busy.pid]))
        finally:
            busy.kill()
    assert 0 < cpu <= clock + 0.1


def test_four_rows_have_the_bounds_and_nulls_of_their_block() -> None:
    """What an engine finds in the rows is what the model says: no block is narrower or wider."""
    model = Model(700, FILTERED_COLUMNS)
    start, stop = 100, 650
    table = rows(model, start, stop)
    assert table.num_rows == ROWS * (stop - start)
    block = np.repeat(np.arange(stop - start), ROWS)
    grouped = table.append_column("block", [block]).group_by("block", use_threads=False)
    for name in FILTERED_COLUMNS:
        found = grouped.aggregate([(name, "min"), (name, "max"), (name, "count")])
        for side, bounds in (("min", model.low), ("max", model.high)):
            column = found[f"{name}_{side}"].combine_chunks()
            assert column.equals(as_values(model, name, bounds, start, stop).cast(column.type)), (name, side)
        has_nulls = pc.less(found[f"{name}_count"], ROWS).to_numpy()
        assert (has_nulls == (model.nulls(name)[start:stop] > 0)).all(), name


@pytest.mark.parametrize("name", NAMES)
def test_what_may_match_holds_every_row_that_does(name: str) -> None:
    """A full scan of the four rows finds matching ones only in blocks that the judge expects an engine to keep."""
    model = Model(400, FILTERED_COLUMNS)
    table = rows(model, 0, model.count)
    for number in range(5):
        query = question(name, number)
        hits = np.flatnonzero(_matches(table, query)) // ROWS
        assert set(hits.tolist()) <= set(truth(model, query).tolist())


def _matches(table: Any, query: Question) -> Any:
    if query.user is not None:
        found = pc.equal(table["user_id"], query.user)
    elif query.prefix is not None:
        found = pc.starts_with(table["path"], query.prefix)
    elif query.ranges or query.points:
        times = pc.cast(table["event_time"], "int64").to_numpy() // 1_000
        found = np.zeros(len(times), bool)
        for first, last in query.ranges or [(point, point) for point in query.points]:
            found |= (times >= first) & (times <= last)
        if query.country is not None:
            found &= pc.equal(table["country"], query.country).to_numpy()
        return found
    else:
        found = pc.is_null(table["error_code"])
    return found.to_numpy()


def test_counts_that_cannot_be_right_are_reported() -> None:
    """A peer that counts fewer blocks than may match has left some out; one that counts more is named as less sharp."""
    may_match = np.array([2, 4, 6])
    assert remarks(PEERS[0], 3, may_match) == "counts only"
    assert remarks(PEERS[0], 9, may_match) == "keeps 9, 3 may match; counts only"
    assert "leaves out 1 or more" in remarks(PEERS[0], 2, may_match)
    with pytest.raises(WrongAnswer):
        compare({OURS[0]: np.array([2, 4, 6, 8]), PEERS[0]: 3}, may_match, "P1")


def outcome(versions: dict[str, str], **more: Any) -> dict[str, Any]:
    """What one engine did, but for P5."""
    timings = {name: {"cpu_ms": 1.0, "p50_ms": 1.0} for name in NAMES if name != "P5"}
    return {"timings": timings, "open_cpu_ms": 1.0, "rss_mb": 1.0, "versions": versions, "note": "counts only", **more}


def test_a_page_says_no_and_which_versions() -> None:
    """A cell of what is not offered is "no", with its reason below; versions are told by run where they differ."""
    old = outcome({"databend": "1.2.453"}, not_run={"P5": "would take about 9 s"})
    new = outcome({"databend": "1.2.895"}, not_offered={"P5": "it has no text"})
    absent = {"not_run": "not run: needs Python 3.12"}
    sizes = {
        "10000": {"blocks": 10_000, "may_match": {}, "engines": {"Databend": old}, "run": 1},
        "100000": {"blocks": 100_000, "may_match": {}, "engines": {"Databend": new, "chDB": absent}, "run": 2},
    }
    about = {"commit": "c", "python": "3.11", "cpus": 2, "cpu": "any", "load_at_start": 0.1}
    page = markdown({"runs": [about, about], "prune": sizes})
    assert "- Databend: run 1: databend 1.2.453; run 2: databend 1.2.895. Counts only." in page
    first, second = page.split("### 100,000 blocks")
    assert "| not run |" in first
    assert "| no |" in second
    assert "- Databend, P5: it has no text" in second
    assert "| chDB | not run: needs Python 3.12 |" in second
