"""The interface of the compared engines, and their list."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt

from speed.questions import Question


class NotOffered(Exception):
    """The measured library does not offer this kind of query."""


class Engine(Protocol):
    """One way of asking which blocks a filter leaves. Made in a process of its own, with the folder of its tables.

    ``versions``: of the libraries at work. ``note``: what a reader of the numbers must know. An engine that works in
    other processes also has ``helpers``: their ids, once it is open.
    """

    versions: dict[str, str]
    note: str

    def build(self, count: int) -> None:
        """Make the table of ``count`` blocks, unless it is there."""

    def open(self, count: int) -> None:
        """Open it, as far as the library does before it is asked."""

    def warm_up(self) -> None:
        """Load what an engine in long use has in memory, where single queries would not load it."""

    def run(self, query: Question) -> Any:
        """Return the answer as the library's user gets it. This is what is timed.

        Raises:
            NotOffered: the library cannot be asked this.
        """

    def block_numbers(self, answer: Any) -> npt.NDArray[np.int64] | int:
        """Return the numbers of the blocks in an answer; only their count where the engine does not name them."""


#: Module and class by name: Lamella's first, then the floors, then the alternatives.
ENGINES: Final = {
    "lamella": ("speed.inside", "Inside"),
    "lamella, ranges": ("speed.inside", "Ranges"),
    "numpy, whole columns": ("speed.floors", "Whole"),
    "numpy, two layers": ("speed.floors", "TwoLayers"),
    "numpy, runs": ("speed.floors", "Runs"),
    "delta-rs file_uris": ("speed.delta", "FileUris"),
    "delta-rs by hand": ("speed.delta", "ByHand"),
    "pyiceberg": ("speed.iceberg", "Iceberg"),
    "pyiceberg, days": ("speed.iceberg", "Days"),
    "DuckLake in DuckDB": ("speed.ducklake", "DuckLake"),
    "DuckLake's extension": ("speed.ducklake_extension", "Extension"),
    "Databend": ("speed.databend_peer", "Databend"),
    "chDB": ("speed.chdb_peer", "Chdb"),
    "DataFusion": ("speed.datafusion_peer", "DataFusion"),
    "Delta on Spark": ("speed.spark_peers", "Delta"),
    "Iceberg on Spark": ("speed.spark_peers", "Iceberg"),
    "Hudi on Spark": ("speed.hudi_peer", "Hudi"),
}
#: Engines that read the table which another one makes, in Lamella's environment.
MADE_BY: Final = {"Delta on Spark": "delta-rs file_uris", "Iceberg on Spark": "pyiceberg"}
#: Engines whose tables are gone with their process: the one that is asked makes them too, in its current folder.
TRANSIENT: Final = ("Databend",)
OURS: Final = ("lamella", "lamella, ranges")
FLOORS: Final = ("numpy, whole columns", "numpy, two layers", "numpy, runs")
PEERS: Final = tuple(name for name in ENGINES if name not in (*OURS, *FLOORS))


def engine(name: str, folder: Path) -> Engine:
    """The engine of that name, with its tables below ``folder``.

    Raises:
        ImportError: its library is not installed.
        NotOffered: the library has no such way of asking.
    """
    module, kind = ENGINES[name]
    made: Engine = getattr(importlib.import_module(module), kind)(folder)
    return made
