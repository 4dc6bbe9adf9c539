"""The modules of ``bench/`` that tests look at."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType

BENCH = Path(__file__).resolve().parents[2] / "bench"


class BenchFinder:
    """Finds these modules and no others: ``bench/`` has scripts that are called as folders of tests are."""

    names = frozenset(
        {
            "auto_days",
            "speed",
            "steady",
            "load",
            "synthetic",
            "loopback",
            "onspark",
            "page_part",
            "peers",
            "strips",
            "tpch_files",
        }
    )

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """As import asks for it; parts of packages are found by themselves."""
        return PathFinder.find_spec(name, [str(BENCH)], target) if path is None and name in self.names else None


sys.meta_path.append(BenchFinder())
