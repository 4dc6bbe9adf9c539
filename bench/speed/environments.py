"""Environments of peers that cannot share Lamella's own: another Python, another DuckDB, another Spark.

``python bench/peers.py`` makes them below ``build/peers``, each from its lock. One that cannot be made leaves a file
that says why, which is what a run shows in its place.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

ROOT: Final = Path(__file__).resolve().parents[2]
#: Where they are made, and where Spark keeps the jars that it fetches.
FOLDER: Final = ROOT / "build" / "peers"
IVY: Final = ROOT / "build" / "ivy"
#: The newest jars for Spark 4.1 that a registry has.
DELTA_JAR: Final = "io.delta:delta-spark_4.1_2.13:4.4.0"
ICEBERG_JAR: Final = "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0"


class Environment(msgspec.Struct, frozen=True, kw_only=True):
    """One environment: ``lock`` names its packages, ``python`` is the least version that they run on.

    ``jars``: Maven coordinates, which Spark fetches when it starts.
    """

    name: str
    lock: str
    python: tuple[int, int] = (3, 11)
    jars: tuple[str, ...] = ()

    @property
    def folder(self) -> Path:
        """The virtual environment."""
        return FOLDER / self.name

    @property
    def interpreter(self) -> Path:
        """Its Python."""
        return self.folder / "bin" / "python"

    @property
    def ready(self) -> Path:
        """A copy of the lock that the environment was made of; missing while it is made."""
        return self.folder / "made-of.lock"

    @property
    def reason(self) -> Path:
        """A text that says why the environment could not be made."""
        return FOLDER / f"{self.name}.txt"

    def is_made(self) -> bool:
        """Whether it is there, of the lock as it is now."""
        lock = ROOT / self.lock
        return self.ready.exists() and self.ready.read_bytes() == lock.read_bytes()


DATABEND: Final = Environment(name="databend", lock="requirements-peer-databend.lock", python=(3, 12))
DUCKLAKE: Final = Environment(name="ducklake", lock="requirements-peer-ducklake.lock")
#: The newest Spark that both Delta and Iceberg have jars for.
SPARK: Final = Environment(
    name="spark",
    lock="requirements-iceberg-spark.lock",
    jars=(DELTA_JAR, ICEBERG_JAR),
)
#: The newest Spark that Hudi has a jar for in a registry.
HUDI: Final = Environment(
    name="hudi", lock="requirements-peer-hudi.lock", jars=("org.apache.hudi:hudi-spark3.5-bundle_2.12:1.2.0",)
)
ENVIRONMENTS: Final = (DATABEND, DUCKLAKE, SPARK, HUDI)

#: Engines that do not run in Lamella's environment.
OF_ENGINES: Final = {
    "Databend": DATABEND,
    "DuckLake's extension": DUCKLAKE,
    "Delta on Spark": SPARK,
    "Iceberg on Spark": SPARK,
    "Hudi on Spark": HUDI,
}


def why_missing(engine: str) -> str:
    """Why an engine has no environment to run in; empty if it has one, or needs none of its own."""
    environment = OF_ENGINES.get(engine)
    if environment is None or environment.is_made():
        return ""
    if environment.reason.exists():
        return environment.reason.read_text().strip()
    return f"its environment {environment.name} is not there, or not of its lock; python bench/peers.py makes it"
