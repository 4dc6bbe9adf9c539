"""A Spark Connect server with a catalog of Lamella, as a process of its own."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from support.spark_environment import spark_environment

STOP_S = 60


@contextmanager
def connect_server(url: str, folder: Path) -> Iterator[str]:
    """The address of a server whose catalog ``lake`` is the service at ``url``; it stops when it gets SIGTERM."""
    command = [sys.executable, "-m", "lamella.client.spark.connect_server", "--catalog", f"lake={url}"]
    settings = ("spark.master=local[2]", "spark.ui.enabled=false", "spark.sql.shuffle.partitions=2")
    with subprocess.Popen(
        [*command, "--port", "0", *(part for each in settings for part in ("--conf", each))],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=spark_environment(),
        cwd=folder,
    ) as server:
        assert server.stdout is not None
        line = next((line for line in server.stdout if line.startswith("Spark Connect: ")), "")
        found = re.fullmatch(r"Spark Connect: (sc://127\.0\.0\.1:\d+) with lake\n", line)
        try:
            assert found is not None, line
            yield found[1]
        finally:
            server.send_signal(signal.SIGTERM)
            assert server.wait(STOP_S) == 0
