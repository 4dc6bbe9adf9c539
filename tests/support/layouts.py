"""Columns laid out in blocks, from useless to perfect, and what look-ups of single values really skip of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from random import Random
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lamella.snapshot.columnar.keys import filled
from lamella.snapshot.columnar.zones import Zones, zones_of
from lamella.snapshot.function.base import Vector
from lamella.snapshot.index import Part, kinds
from lamella.snapshot.prune.evaluate import evaluate
from lamella.snapshot.schema import DataType, parse_type
from lamella.snapshot.sketch import estimate, united
from lamella.snapshot.sketch.sketcher import Sketcher
from lamella.snapshot.stats import ColumnStats, to_bound
from lamella.snapshot.workload.distribution import ValueDistribution, value_distribution_of
from support import index_cases
from support.index_cases import opened, probe

Values = npt.NDArray[Any]


class Layout(NamedTuple):
    """A column of a type in blocks, as numbers; of text they are spelled out with as many digits."""

    name: str
    dtype: DataType
    blocks: list[Values]

    def cells(self, values: Values) -> list[Any]:
        """Numbers as values of the type's order."""
        if self.dtype.is_text:
            return [b"order-%09d" % value for value in values.tolist()]
        return list(values.tolist())

    def vector(self, values: Values) -> Vector:
        """Rows of a block."""
        valid = np.ones(len(values), dtype=bool)
        if self.dtype.is_text:
            return Vector(pa.array(self.cells(values), pa.large_binary()), valid)
        return Vector(values, valid)


def arranged(rng: np.random.Generator, values: Values, noise: float | None) -> Values:
    """Sorted, but for ranks that are off by ``noise`` of all rows; None: in no order."""
    if noise is None:
        return rng.permutation(values)
    positions = np.arange(len(values)) / len(values) + rng.normal(0, 1, len(values)) * noise
    return np.sort(values)[np.argsort(positions, kind="stable")]


def values_of(rng: np.random.Generator, shape: str, count: int) -> tuple[str, Values]:
    """Values of one shape with the type that they are of."""
    match shape.split():
        case ["spread"]:
            return "float64", rng.uniform(0, 1, count)
        case ["skewed"]:
            return "float64", rng.lognormal(0, 2, count)
        case ["ids"]:
            return "int64", np.sort(rng.choice(10 * count, count, replace=False))
        case ["texts"]:
            return "string", np.sort(rng.choice(10 * count, count, replace=False))
        case ["alike", ndv]:
            return "int64", rng.integers(0, int(ndv), count) * 10
        case ["popular", ndv]:
            return "int64", np.minimum(rng.zipf(1.4, count), int(ndv)) * 7
    raise ValueError(shape)


SHAPES = ("spread", "skewed", "ids", "texts", "alike 6", "alike 200", "popular 2000")
NOISES: Mapping[str, float | None] = {
    "random": None,
    "barely sorted": 0.5,
    "roughly sorted": 0.1,
    "mostly sorted": 0.02,
    "nearly sorted": 0.004,
    "sorted": 0.0,
}


def family(seed: int, *, blocks: tuple[int, ...] = (40, 150), rows: tuple[int, ...] = (20, 300)) -> Iterator[Layout]:
    """Every shape in every order, in few and many blocks, small and large."""
    rng = np.random.default_rng(seed)
    for shape in SHAPES:
        for order, noise in NOISES.items():
            for count in blocks:
                for size in rows:
                    dtype, values = values_of(rng, shape, count * size)
                    cut = np.array_split(arranged(rng, values, noise), count)
                    yield Layout(f"{shape}, {order}, {count} blocks of {size}", parse_type(dtype), cut)
        dtype, values = values_of(rng, shape, 100 * 100)
        half = np.concatenate([np.sort(values[::2]), rng.permutation(values[1::2])])
        yield Layout(f"{shape}, half sorted", parse_type(dtype), np.array_split(half, 100))


def zones(layout: Layout) -> Zones:
    """The zone maps that manifests have of it."""
    entries = []
    for block in layout.blocks:
        low, high = (layout.cells(np.array([edge]))[0] for edge in (block.min(), block.max()))
        stats = ColumnStats(min=to_bound(layout.dtype, low), max=to_bound(layout.dtype, high), null_count=0)
        entries.append((len(block), stats))
    return zones_of(layout.dtype, entries)


def value_distribution(layout: Layout, *, counted: bool = True, sketched: bool = False) -> ValueDistribution:
    """What is expected of it, from what manifests have."""
    distinct = [float(len(np.unique(block))) for block in layout.blocks]
    total: float | None = float(len(np.unique(np.concatenate(layout.blocks))))
    if sketched:
        sketches = []
        for block in layout.blocks:
            sketcher = Sketcher(layout.dtype)
            cells = layout.cells(block)
            sketcher.add(pa.array([cell.decode() for cell in cells] if layout.dtype.is_text else cells))
            sketch = sketcher.sketch()
            assert sketch is not None
            sketches.append(sketch)
        distinct = [float(estimate(sketch)) for sketch in sketches]
        whole = united(sketches)
        assert whole is not None
        total = float(estimate(whole))
    rows = np.array([float(len(block)) for block in layout.blocks])
    if not counted:
        distinct, total = [float("nan")] * len(rows), None
    return value_distribution_of("block", zones(layout), layout.dtype, rows, np.array(distinct), total)


class Measured(NamedTuple):
    """Look-ups: blocks in all, those that had the value, those that bounds kept, and that bounds and index kept."""

    blocks: int
    must: int
    bounds: int
    both: int


def present_and_absent(rng: Random, layout: Layout, count: int) -> tuple[Values, Values]:
    """Values that are there, each as likely as the others, and values in between that are not."""
    values = np.unique(np.concatenate(layout.blocks))
    present = np.array(rng.choices(values.tolist(), k=count), dtype=values.dtype)
    if values.dtype == np.float64:
        sample_values = np.array([rng.uniform(values[0], values[-1]) for _ in range(count)])
    else:
        sample_values = np.array([rng.randint(int(values[0]), int(values[-1])) for _ in range(3 * count)])
    return present, sample_values[~np.isin(sample_values, values)][:count]


class LayoutLookUps:
    """A layout that look-ups are made in, with a real part of an index (``kind`` None: without)."""

    def __init__(self, layout: Layout, kind: str | None = None, given: Mapping[str, Any] | None = None) -> None:
        self._layout = layout
        self._zones = zones(layout)
        self._present_values = [set(block.tolist()) for block in layout.blocks]
        self._part: Part | None = None
        self.size_bytes = 0
        if kind is not None:
            made = kinds()[kind]
            options = made.options(layout.dtype, given or {})
            builder = made.builder(layout.dtype, options)
            for block in layout.blocks:
                builder.add(layout.vector(block))
                builder.end_block()
            sections, facts = builder.sections()
            self.size_bytes = sum(array.nbytes for array in sections.values())
            self._part = opened(kind, layout.dtype, options, sections, facts, len(layout.blocks)).part

    def measured(self, values: Values) -> Measured:
        """What look-ups of these values do."""
        count = len(self._layout.blocks)
        bounds = both = must = 0
        for cell, value in zip(self._layout.cells(values), values.tolist(), strict=True):
            test = index_cases.equal(self._layout.dtype, cell)
            selected = filled(evaluate(test, lambda _leaf: self._zones, count).true, count)
            bounds += int(selected.sum())
            if self._part is not None:
                possible_outcomes = probe(self._part).possible_outcomes(test, np.arange(count))
                selected = selected if possible_outcomes is None else selected & filled(possible_outcomes.true, count)
            both += int(selected.sum())
            must += sum(value in present for present in self._present_values)
        return Measured(count * len(values), must, bounds, both)


def score(present: Measured, absent: Measured | None, *, is_index: bool) -> float:
    """What was skipped of what could be, as the score counts it; from 0 to 100."""
    shares = []
    for found in (present, absent):
        if found is not None and found.blocks:
            could = found.blocks - found.must
            skipped = found.bounds - found.both if is_index else found.blocks - found.bounds
            shares.append(skipped / max(could, 0.02 * found.blocks))
    return 100 * float(np.mean(shares))
