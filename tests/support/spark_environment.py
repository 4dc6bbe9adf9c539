"""The environment of a program with a session of Spark of its own."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def spark_environment(python: Path | str = sys.executable) -> dict[str, str]:
    """This process's environment, without what the tests' own session has set; ``python``: what the program runs on."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("SPARK_", "PYSPARK_"))}
    return environment | {
        "SPARK_SUBMIT_OPTS": os.environ["SPARK_SUBMIT_OPTS"],  # of a Java that runs for a short time
        "PYSPARK_PYTHON": str(python),
        "PYSPARK_SUBMIT_ARGS": "--driver-memory 1g pyspark-shell",
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYTHONWARNINGS": "ignore",
    }


def connect_environment() -> dict[str, str]:
    """The same for a session of Spark Connect, whose server chooses a free port."""
    return spark_environment() | {"SPARK_TESTING": "1"}
