"""Long bounds of bytes are cut: the lower one to its beginning, the upper one to a beginning that is greater."""

from __future__ import annotations

from typing import Final

#: Longer bounds of bytes are cut.
MAX_BOUND_BYTES: Final = 64


def upper_prefix(value: bytes, length: int) -> bytes:
    """The least bytes of at most ``length`` that are not less than any text starting with ``value[:length]``.

    The last byte that can grow grows by one; where none can (all FF) the whole value stays (rule D4 of the notes on
    Parquet statistics).
    """
    kept = value[:length].rstrip(b"\xff")
    return kept[:-1] + bytes((kept[-1] + 1,)) if kept else value
