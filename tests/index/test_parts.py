"""Parts: what says that it is one, and is none, is an error of ours before anything is read of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import pytest

from lamella.snapshot.errors import ManifestError
from lamella.snapshot.index.part import Part, PartHeader, Section, pack, ref_of

ARRAY = np.arange(100, dtype=np.uint32).reshape(50, 2)


def opened(data: bytes, tail_bytes: int) -> Part:
    """The part of these bytes."""

    def fetch(ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        return [data[start : start + length] for start, length in ranges]

    return Part(ref_of("s3://b/x.part", data, tail_bytes, 50), fetch)


def with_section(**changes: Any) -> tuple[bytes, int]:
    """A part whose header says something else of its one section; hashes fit."""
    data, tail_bytes = pack("k", "int64", 50, {"a": ARRAY}, options={}, facts={})
    body, tail = data[: len(data) - tail_bytes], data[len(data) - tail_bytes :]
    header = msgspec.json.decode(tail[16:], type=PartHeader)
    section = msgspec.structs.replace(header.sections["a"], **changes)
    other = tail[:16] + msgspec.json.encode(msgspec.structs.replace(header, sections={"a": section}))
    return body + other, len(other)


def test_a_section_comes_back_as_it_was_packed() -> None:
    """With its type and shape."""
    assert (opened(*with_section()).whole("a") == ARRAY).all()
    assert Section(0, "<u4", (50, 2)).fits(400)


@pytest.mark.parametrize(
    "changes",
    [
        {"dtype": "nonsense"},
        {"dtype": "("},
        {"dtype": "|O"},
        {"dtype": ""},
        {"dtype": "<u8", "shape": (1 << 40, 2)},
        {"shape": ()},
        {"shape": (-1, 2)},
        {"shape": (50, -2)},
        {"offset": -64},
        {"offset": 64},
    ],
)
def test_a_section_that_cannot_be_is_refused_when_the_part_is_opened(changes: dict[str, Any]) -> None:
    """A type that is none, or a place outside of the part."""
    with pytest.raises(ManifestError, match="section"):
        opened(*with_section(**changes))
