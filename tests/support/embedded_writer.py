"""Processes that have one folder open as an embedded lake and append to its table until they are killed."""

from __future__ import annotations

import multiprocessing
import os
import sys
from multiprocessing.process import BaseProcess
from pathlib import Path

import pyarrow as pa
import pytest

import lamella.service.embedded  # noqa: F401  # loaded once, in the process that the others are forked from
from lamella.client import Lamella

TABLE = "db.t"
#: Rows of each append; all have its number.
ROWS = 3


def run(folder: str, log: str, first: int) -> None:
    """Append rows with the numbers ``first``, ``first + 1``, ...; tell of each before and after, in lines of a file."""
    with Path(log).open("a") as said, Lamella.embedded(folder) as lake:
        table = lake.table(TABLE)
        number = first
        while True:
            print("begun", number, file=said, flush=True)
            table.append(pa.table({"a": [number] * ROWS}))
            print("done", number, file=said, flush=True)
            number += 1


class Writer:
    """One such process."""

    def __init__(self, folder: Path, log: Path, first: int) -> None:
        self.log = log
        log.touch()
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload([__name__])
        self.process: BaseProcess = context.Process(target=run, args=(str(folder), str(log), first))
        with pytest.MonkeyPatch.context() as patch:
            # The process that the others are forked from finds modules by this variable alone.
            patch.setenv("PYTHONPATH", os.pathsep.join(path for path in sys.path if path))
            self.process.start()

    def numbers(self, word: str) -> list[int]:
        """The numbers of appends that were ``begun``, or ``done``. A line that is cut off does not count."""
        lines = [line.split() for line in self.log.read_text().splitlines(keepends=True) if line.endswith("\n")]
        return [int(number) for said, number in lines if said == word]

    def kill(self) -> None:
        """As ``kill -9`` does."""
        self.process.kill()
        self.process.join(60)
