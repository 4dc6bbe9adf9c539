"""Upper bounds of histograms' buckets, in seconds."""

from __future__ import annotations

from typing import Final

# fmt: off
#: Of requests: close around a millisecond, where most prunes are answered, so that a quantile is off by a tenth or two.
REQUEST_S: Final = (
    0.0001, 0.00025, 0.0004, 0.0006, 0.0008, 0.001, 0.00125, 0.0015, 0.002, 0.0025, 0.003, 0.004, 0.005, 0.0065, 0.008,
    0.01, 0.015, 0.02, 0.03, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0,
)
#: Of what waits for others.
WAIT_S: Final = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
#: Of calls of a store or a database: from files of this machine to what is hardly reached.
CALL_S: Final = (
    0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0,
)
# fmt: on
