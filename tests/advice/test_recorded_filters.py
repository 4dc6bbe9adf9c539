"""Filters that were asked are kept without what they asked for, and can be asked again all the same."""

from __future__ import annotations

from pathlib import Path
from random import Random

import msgspec
import numpy as np
import pyarrow as pa
import pytest

from lamella.snapshot.advice.what_if import WhatIf
from lamella.snapshot.errors import InvalidRequest
from lamella.snapshot.expression import bind, read_filter
from lamella.snapshot.expression.bound import Anything, leaves_of
from lamella.snapshot.expression.coerce import literal_of
from lamella.snapshot.expression.nodes import Compare, Ref
from lamella.snapshot.expression.text import tree_of
from lamella.snapshot.manifest import Block
from lamella.snapshot.schema import Column, Schema
from lamella.snapshot.warehouse.block_sample import BlockSample
from lamella.snapshot.warehouse.finder import IndexAccess
from lamella.snapshot.warehouse.manifests import Manifests
from lamella.snapshot.warehouse.read_costs import replayed_filters
from lamella.snapshot.wire.advice import IndexChange, WhatIfAnswer, WhatIfRequest
from lamella.snapshot.workload.recorded_filters import PROPERTY, Recorded, check_recording, masked, mode_of
from support import generate
from support.real_tables import RealTable

SECRETS = [
    "name = 'secretvalue'",
    "name IN ('secretvalue', 'othersecret') OR amount > 987654.25",
    "name LIKE '%secretvalue%' AND NOT day >= DATE '2033-03-03'",
    "name <=> 'secretvalue' AND id BETWEEN 987654 AND 9876543",
    "startswith(name, 'secretvalue') AND lower(name) = 'othersecret'",
    "coalesce(name, 'secretvalue') = 'othersecret'",
    "concat(name, 'secretvalue') = 'othersecret'",
    "amount = 987654.25BD AND (day IS NULL OR isnan(amount))",
]


@pytest.mark.parametrize("text", SECRETS)
@pytest.mark.parametrize("secret", [None, b"key"])
def test_nothing_of_a_constant_is_recorded(text: str, secret: bytes | None) -> None:
    """Neither the tree nor the text of what is kept has a piece of any constant; columns and operators stay."""
    stored = msgspec.json.encode(tree_of(masked(read_filter(text), secret))).decode()
    for piece in ("secret", "other", "98765", "2033", "03-03", "23072", "23073", "value'"):
        assert piece not in stored, stored
    assert ("name" in stored) == ("name" in text)


def test_hashes_distinguish_equal_constants_from_others() -> None:
    """With a key, equal constants have equal hashes, others not; another key gives others."""
    one, same, other = (masked(read_filter(f"a = {value}"), b"key") for value in (5, 5, 6))
    assert one == same != other
    assert masked(read_filter("a = 5"), b"another") != one
    assert masked(read_filter("a = 5")) == masked(read_filter("a = 6"))


def test_patterns_keep_their_wildcards() -> None:
    """How long the fixed text is, and where, is the shape of a pattern."""
    assert masked(read_filter("a LIKE '%ab\\\\%c_d%'")) == masked(read_filter("a LIKE '%x.yz_w%'"))
    assert masked(read_filter("a LIKE '%ab'")) != masked(read_filter("a LIKE 'ab%'"))


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> RealTable:
    """30 blocks; ``day`` ascends, the rest is in no order."""
    rng = np.random.default_rng(2)
    count = 6000
    whole = pa.table(
        {
            "id": pa.array(np.arange(count)),
            "day": pa.array(np.sort(rng.integers(19_000, 20_000, count)), pa.int32()).cast(pa.date32()),
            "name": pa.array([f"name {value}" for value in rng.integers(0, 3000, count)]),
            "amount": pa.array(rng.lognormal(3, 1, count)),
            "code": pa.array(rng.integers(0, 2000, count)),
        }
    )
    return RealTable(tmp_path_factory.mktemp("recorded"), [whole.slice(start, 200) for start in range(0, count, 200)])


def recorded_filter(text: str, *, part: float, is_full: bool = False, times: int = 1) -> Recorded:
    """A filter as it would have been recorded, when it kept that part of the blocks."""
    predicate = read_filter(text)
    tree = tree_of(predicate if is_full else masked(predicate))
    return Recorded(
        tree=msgspec.json.encode(tree).decode(),
        text=text,
        is_full=is_full,
        times=times,
        considered=1000 * times,
        selected=round(1000 * part * times),
    )


def ask(table: RealTable, recorded: list[Recorded], change: WhatIfRequest) -> WhatIfAnswer:
    """What the recorded filters would read."""
    manifests = Manifests(table.store, 64 << 20)
    return WhatIf(manifests, IndexAccess(manifests), table.store).answer(table.pointer, change, [], recorded)


def test_sampled_filters_are_as_selective_as_the_recorded_ones(table: RealTable) -> None:
    """Of ranges those constants are taken that keep about as many blocks as were kept."""
    for part in (0.04, 0.3, 0.9):
        recorded = [
            recorded_filter("day >= DATE '2030-01-01' AND day < DATE '2030-02-01'", part=part) for _ in range(10)
        ]
        found = ask(table, recorded, WhatIfRequest(rows_per_block=200))
        assert 1 - found.now.skip == pytest.approx(part, abs=0.12)


@pytest.mark.slow
def test_recorded_look_ups_predict_what_an_index_skips(table: RealTable, tmp_path: Path) -> None:
    """A shape replayed with drawn constants is within five points of look-ups in the table with the index."""
    recorded = [recorded_filter("code = 1", part=1.0, times=7) for _ in range(20)]
    change = IndexChange(kind="bloom", expression="code")
    found = ask(table, recorded, WhatIfRequest(index=change))
    assert all(each.times == 7 for each in found.filters)
    blocks = [table.store.read(block.location) for block in scene_blocks(table)]
    done = RealTable(tmp_path, [pa.parquet.read_table(pa.BufferReader(data)) for data in blocks])
    done.add_index("i", "bloom", "code")
    values = Random(1).sample(range(2000), 60)
    there = [value for value in values if done.skipped(f"code = {value}") < 1]
    assert found.then is not None
    assert found.then is not None
    assert found.then.skip == pytest.approx(np.mean([done.skipped(f"code = {value}") for value in there]), abs=0.05)


def scene_blocks(table: RealTable) -> list[Block]:
    """The blocks of a table."""
    return [block for ref in table.warehouse.segments(table.pointer) for block in table.warehouse.segment(ref).blocks]


def test_whole_filters_are_replayed_as_they_were(table: RealTable) -> None:
    """With opt-in, the constants are the ones that were asked for."""
    recorded = [recorded_filter("day >= DATE '2023-05-05'", part=0.5, is_full=True, times=3)]
    found = ask(table, recorded, WhatIfRequest(rows_per_block=200))
    (forecast,) = found.filters
    assert forecast.times == 3
    assert forecast.now.skip == table.skipped("day >= DATE '2023-05-05'")
    assert found.rests_on[-1] == "1 recorded filters, 0 of them with drawn constants"


def test_filters_over_columns_that_are_gone_are_left_out(table: RealTable) -> None:
    """With the reason."""
    recorded = [recorded_filter("gone = 5", part=0.5, is_full=True), recorded_filter("code = 5", part=1.0)]
    found = ask(table, recorded, WhatIfRequest(rows_per_block=200))
    assert list(found.left_out) == ["gone = 5"]
    assert len(found.filters) == 2


@pytest.mark.parametrize("text", SECRETS)
def test_every_shape_can_be_replayed(table: RealTable, text: str) -> None:
    """Whatever was masked can be read, drawn and bound; what is not drawn rules out nothing."""
    scene = BlockSample(Manifests(table.store, 64 << 20), table.pointer)
    found = replayed_filters(scene, [recorded_filter(text, part=0.5)], case_sensitive=False, seed=1)
    assert found.filters or found.left_out
    for each in found.filters:
        node = bind(each.predicate, scene.head.schema)
        assert leaves_of(node)


def test_constants_are_values_of_their_columns() -> None:
    """Of every type that can be spelled, a drawn constant equals the value that it was made from."""
    rng = Random(5)
    for name in generate.TYPES:
        dtype = generate.dtype_of(name)
        if dtype.order is None:
            continue
        schema = Schema.assign([Column(name="c", type=str(dtype))])
        value = generate.value(rng, dtype)
        literal = literal_of(dtype, value)
        if literal is None:
            assert dtype.name == "time"
            continue
        (leaf,) = leaves_of(bind(Compare("eq", Ref("c"), literal), schema))
        assert isinstance(leaf, Anything) or repr(getattr(leaf, "value", value)) == repr(value), name


def test_tables_may_say_what_is_recorded() -> None:
    """The property overrides the service's default, but cannot turn on what the service turned off."""
    assert mode_of({}, "shape") == "shape"
    assert mode_of({PROPERTY: "full"}, "shape") == "full"
    assert mode_of({PROPERTY: "off"}, "full") == "off"
    assert mode_of({PROPERTY: "full"}, "off") == "off"
    check_recording({PROPERTY: "hashed"})
    with pytest.raises(InvalidRequest, match="one of off, shape"):
        check_recording({PROPERTY: "some"})
