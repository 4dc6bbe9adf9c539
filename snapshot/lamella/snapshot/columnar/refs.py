"""Where the companions of a snapshot's segments are."""

from __future__ import annotations

from typing import Literal

from lamella.snapshot.columnar.companion import Companion
from lamella.snapshot.manifest import ObjectRef


class CompanionRefs:
    """The companions of the segments of a snapshot's layer, by row; ``of`` "manifest": their manifests.

    The layer's texts are read when first asked for.
    """

    #: What it takes in memory for each segment, roughly.
    BYTES_A_SEGMENT = 400

    def __init__(self, segments: Companion, of: Literal["companion", "manifest"] = "companion") -> None:
        self._segments = segments
        self._of = of
        self._parts: tuple[list[str], list[str], list[int]] | None = None

    def __call__(self, row: int) -> ObjectRef:
        """Of one."""
        parts = self._parts
        if parts is None:
            names, hashes = (self._segments.texts(f"{self._of}.{what}") for what in ("location", "sha256"))
            parts = self._parts = names, hashes, self._segments.numbers(f"{self._of}.size_bytes").tolist()
        return ObjectRef(location=parts[0][row], sha256=parts[1][row], size_bytes=parts[2][row])
