"""A kind of job that tests bring, as other packages do: by an entry point of a distribution on the path."""

from __future__ import annotations

import os
import sys
from pathlib import Path

_MODULE = """
from lamella.snapshot.job_kinds import Arguments
from lamella.snapshot.job_kinds import JobKind


class PretendArguments(Arguments, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    ledger: str
    steps: int = 1
    step_s: float = 0.02
    fails: int = 0
    how: str = "exit"
    polls: bool = False


KIND = JobKind(
    name="pretend",
    text="Do nothing, slowly.",
    arguments=PretendArguments,
    program=({python!r}, {program!r}),
)
"""


def install_pretend(folder: Path) -> dict[str, str]:
    """Put the distribution into a folder; the variables by which a program sees it there."""
    program = Path(__file__).with_name("job_program.py")
    (folder / "pretended_jobs.py").write_text(_MODULE.format(python=sys.executable, program=str(program)), "utf-8")
    info = folder / "pretended_jobs-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: pretended-jobs\nVersion: 1.0\n", "utf-8")
    (info / "entry_points.txt").write_text("[lamella.job_kinds]\npretend = pretended_jobs:KIND\n", "utf-8")
    before = os.environ.get("PYTHONPATH")
    return {"PYTHONPATH": f"{folder}{os.pathsep}{before}" if before else str(folder)}
