"""Bloom filters: equality and lists over columns whose values are spread all over the table.

They say of a value that a block certainly does not have it. Nothing is known of nulls and NaN. Blocks whose files have
filters of their own need not be read to build them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from lamella.snapshot.bloom.physical import hashes_in, type_of
from lamella.snapshot.bloom.xxh64 import Hashes
from lamella.snapshot.expression.bound import BoundTest, Comparison, Membership
from lamella.snapshot.function.vector import Vector
from lamella.snapshot.index import foreseen_filters, stacked
from lamella.snapshot.index.file_filters import read_filters, shrunk
from lamella.snapshot.index.hashing import has_keys, value_keys, vector_keys
from lamella.snapshot.index.kind import Builder, Claim, Probe
from lamella.snapshot.index.options import Option, checked
from lamella.snapshot.index.part import Part
from lamella.snapshot.index.profile import Expected, Profile
from lamella.snapshot.index.values import ascending
from lamella.snapshot.index.widening import can_serve, narrowed
from lamella.snapshot.layout.store import Store
from lamella.snapshot.parquet.footer import Footer
from lamella.snapshot.schema import DataType, parse_type
from lamella.snapshot.stats.bound import Value

#: What all kinds that stack filters take.
FILTER_OPTIONS: Final = {
    "false_positives": Option(
        0.01, least=1e-9, most=0.5, text="how often a block that lacks a value is read all the same"
    ),
    "above_bytes": Option(
        1 << 20, least=0, most=1 << 30, text="the most that one filter over all blocks of a part may take"
    ),
}


class BloomKind:
    """Split block filters over all scalar types but boolean."""

    name = "bloom"
    text = "equality and IN over values that are spread over the table: certainly not in this block"
    known_options: Mapping[str, Option] = FILTER_OPTIONS

    def options(self, dtype: DataType, given: Mapping[str, Any]) -> dict[str, Any]:
        """``false_positives``, ``above_bytes``."""
        return checked(self.name, FILTER_OPTIONS, given, dtype, fits=has_keys(dtype))

    def answers(self, test: BoundTest, options: Mapping[str, Any]) -> str | None:  # noqa: ARG002  # all are alike
        """Equality with a value, and lists."""
        return None if asked_values(test) is not None else "only = and IN ask whether a value is there"

    def builder(self, dtype: DataType, options: Mapping[str, Any]) -> Builder:
        """Builds a part."""
        return BloomBuilder(dtype, options)

    def probe(self, part: Part) -> Probe:
        """Answers from a part."""
        return BloomProbe(part)

    def taken(
        self, parts: list[tuple[Part, npt.NDArray[np.int64]]]
    ) -> tuple[dict[str, npt.NDArray[Any]], dict[str, Any]]:
        """Blocks of several parts as one."""
        return stacked.taken(parts)

    def expected(self, profile: Profile, options: Mapping[str, Any]) -> Expected:
        """As sharp as the option says, and as large as the different values take for that."""
        return foreseen_filters.expected(profile, options["false_positives"], options["above_bytes"])


class BloomBuilder:
    """Gathers the distinct values of each block, or takes the filters of its file."""

    def __init__(self, dtype: DataType, options: Mapping[str, Any]) -> None:
        self._dtype = dtype
        self._stack = stacked.StackBuilder(options["false_positives"], options["above_bytes"])
        self._keys: list[Hashes] = []

    def add(self, values: Vector) -> None:
        """Some rows."""
        self._keys.append(vector_keys(self._dtype, values))

    def end_block(self) -> None:
        """The block's filter."""
        keys = self._keys
        self._stack.add_block(ascending(np.concatenate(keys)) if keys else np.zeros(0, dtype=np.uint64))
        self._keys = []

    def add_file(self, store: Store, footer: Footer, leaf: int) -> str | None:
        """The next block from the filters in its file, as small as the rate of false positives allows."""
        dtype = footer.metadata.schema.leaves[leaf].dtype
        if not can_serve(dtype, self._dtype):
            return f"the file has {dtype}, the term is {self._dtype}"
        found = read_filters(store, footer, leaf)
        if isinstance(found, str):
            return found
        rate = self._stack.rate / max(1, len(found))
        self._stack.add_filters([(domain, shrunk(words, rate)) for domain, words in found])
        return None

    def sections(self) -> tuple[dict[str, npt.NDArray[Any]], dict[str, Any]]:
        """All filters."""
        return self._stack.sections()


class BloomProbe:
    """Looks values up."""

    def __init__(self, part: Part) -> None:
        self._stack = stacked.Stack(part)
        self._dtype = parse_type(part.header.dtype)

    def claim(self, test: BoundTest, rows: npt.NDArray[np.int64]) -> Claim | None:
        """No row equals a value that the block does not have."""
        values = asked_values(test)
        if values is None or test.term is None or not can_serve(self._dtype, test.term.dtype):
            return None
        keys = {domain: self._keys(domain, test.term.dtype, values) for domain in self._stack.domains}
        return Claim(self._stack.any_of({domain: some for domain, some in keys.items() if some is not None}, rows))

    def _keys(self, domain: str, asked: DataType, values: list[Value]) -> Hashes | None:
        """The keys of those values that rows of such a block can have; None: that is not known."""
        if domain == stacked.OURS:
            return self._stack.left(value_keys(self._dtype, narrowed(self._dtype, asked, values)))
        dtype = type_of(domain)
        return hashes_in(domain, narrowed(dtype, asked, values)) if can_serve(dtype, asked) else None


def asked_values(test: BoundTest) -> list[Value] | None:
    """The values one of which a row must equal for the test to be true; None: there are no such."""
    match test:
        case Comparison(_, "eq", value, _) if value == value:
            return [value]
        case Membership(_, values, False, _, _):
            return list(values)
        case _:
            return None
