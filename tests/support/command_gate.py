"""Stands before the program of a job, as ``spark-submit`` would, and starts it once a file is there.

``python command_gate.py FILE PROGRAM ARGUMENTS...``: a test can thus see a job before, at and after its work.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

if __name__ == "__main__":
    while not Path(sys.argv[1]).exists():
        time.sleep(0.05)
    os.execv(sys.executable, [sys.executable, *sys.argv[2:]])  # noqa: S606  # the program that the worker was given
