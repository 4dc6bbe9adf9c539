"""Makes the modules of bench/ importable, as when a benchmark runs; last in the path, so that they hide nothing."""

import sys
from pathlib import Path

BENCH = Path(__file__).resolve().parents[2] / "bench"
if str(BENCH) not in sys.path:
    sys.path.append(str(BENCH))
