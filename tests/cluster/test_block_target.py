"""The size that blocks of a table should have, as its properties say it."""

from __future__ import annotations

import pytest

from lamella.snapshot.cluster.extent import BlockTarget, block_target_of
from lamella.snapshot.errors import InvalidRequest


def test_each_property_stands_for_itself() -> None:
    """What is not set is a million rows, and 128 MiB."""
    assert block_target_of({}) == BlockTarget(rows=1_000_000, size_bytes=128 << 20)
    assert block_target_of({"target_block_rows": "007"}) == BlockTarget(rows=7)
    given = {"target_block_rows": "5", "target_block_bytes": "4096", "other": "x"}
    assert block_target_of(given) == BlockTarget(rows=5, size_bytes=4096)


@pytest.mark.parametrize("name", ["target_block_rows", "target_block_bytes"])
@pytest.mark.parametrize("text", ["", "0", "-1", "1.5", "1e6", "128MiB", " 1", "1_000", "9" * 19, "\u0661"])
def test_a_value_that_is_no_number_of_rows_or_bytes_is_refused(name: str, text: str) -> None:
    """The error names the property."""
    with pytest.raises(InvalidRequest, match=name) as caught:
        block_target_of({name: text})
    assert caught.value.details == {"property": name}
