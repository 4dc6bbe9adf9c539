"""Which files may be mapped into memory: those of a file system of this very machine.

On one that is reached over a network, a file that another machine deletes cannot be read any more where it is mapped,
and the system ends the process that tries.
"""

from __future__ import annotations

import os
import re
from functools import lru_cache
from typing import Final

_MOUNTS: Final = "/proc/self/mounts"
_OF_THIS_MACHINE: Final = frozenset(
    {"bcachefs", "btrfs", "ext2", "ext3", "ext4", "f2fs", "overlay", "tmpfs", "xfs", "zfs"}
)
_ESCAPED: Final = re.compile(r"\\([0-7]{3})")


@lru_cache(maxsize=1024)
def is_mappable(folder: str) -> bool:
    """True when the folder is on a file system that is known to be of this machine; False where that is not known."""
    try:
        with open(_MOUNTS, encoding="utf-8", errors="surrogateescape") as file:
            lines = file.read().splitlines()
    except OSError:
        return False
    real = os.path.realpath(folder)
    found, kind = "", ""
    for line in lines:
        _, at, this, *_ = line.split(" ")
        at = _ESCAPED.sub(lambda code: chr(int(code[1], 8)), at)
        # Of two mounts in one place the later one is seen.
        if len(at) >= len(found) and (real == at or real.startswith(at.rstrip("/") + "/")):
            found, kind = at, this
    return kind in _OF_THIS_MACHINE
