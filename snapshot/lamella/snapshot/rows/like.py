"""LIKE over the texts of an Arrow array."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lamella.snapshot.columnar.keys import Mask
from lamella.snapshot.errors import FilterNotEvaluable
from lamella.snapshot.expression.like import ANY, ONE, Part, like_parts


class Pattern(msgspec.Struct, frozen=True):
    """A pattern's parts; no two texts and no two ``ANY`` stand beside each other."""

    parts: tuple[Part, ...]

    def matches(self, text: Any) -> Mask:
        """Which of an Arrow array's texts (large strings without nulls) match as a whole."""
        texts = tuple(part for part in self.parts if isinstance(part, str))
        if ONE not in self.parts and len(texts) <= 1:
            found = self._simple(text, texts[0] if texts else "")
        else:
            try:
                found = pc.match_substring_regex(text, self._regex())
            except pa.ArrowInvalid as error:
                raise FilterNotEvaluable("a LIKE pattern is too long to be evaluated") from error
        return np.asarray(found.to_numpy(zero_copy_only=False)).astype(bool)

    def _simple(self, text: Any, fixed: str) -> Any:
        opens, closes = self.parts[:1] == (ANY,), self.parts[-1:] == (ANY,)
        if opens and closes:
            return pc.match_substring(text, fixed)
        if closes:
            return pc.starts_with(text, fixed)
        return pc.ends_with(text, fixed) if opens else pc.equal(text, pa.scalar(fixed, pa.large_string()))

    def _regex(self) -> str:
        body = "".join(
            (".*" if part == ANY else ".") if isinstance(part, int) else "".join(map(_quoted, part))
            for part in self.parts
        )
        return rf"(?s)\A{body}\z"


def like_pattern(pattern: str, escape: str) -> Pattern | None:
    """A pattern's parts; None when the escape character stands before anything but a wildcard or itself."""
    parts = like_parts(pattern, escape)
    return None if parts is None else Pattern(parts)


def _quoted(character: str) -> str:
    return character if character.isalnum() or ord(character) > 127 else f"\\x{{{ord(character):x}}}"
