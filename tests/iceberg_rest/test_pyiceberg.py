"""pyiceberg reads Lamella's tables as if it had scanned all files, and counts what is proven without opening any."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pyiceberg import expressions
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import NoSuchTableError, OAuthError, RESTError, UnauthorizedError
from pyiceberg.expressions.visitors import bind
from pyiceberg.io.pyarrow import expression_to_pyarrow
from pyiceberg.table import Table

from fixtures_server import ServerProcess
from lamella.client.http import Lamella
from lamella.snapshot.schema.evolution import AddColumn, DropColumn, RenameColumn, WidenColumn
from lamella.snapshot.tokens import key_sha256, key_text
from lamella.snapshot.wire import Grant
from support.iceberg_tables import SCHEMA, IcebergTable, ids, values

#: Its type hints leave out what its own documentation does.
e: Any = expressions
_COMPARISONS: Final = (
    *(e.LessThan, e.LessThanOrEqual, e.GreaterThan),
    *(e.GreaterThanOrEqual, e.EqualTo, e.NotEqualTo),
)


@pytest.fixture(scope="module")
def made(lake: Lamella, tmp_path_factory: pytest.TempPathFactory) -> IcebergTable:
    """A table of all types in six blocks."""
    return IcebergTable(lake, tmp_path_factory.mktemp("files"))


@pytest.fixture(scope="module")
def table(catalog: Catalog, made: IcebergTable) -> Table:
    """It as pyiceberg loads it."""
    return catalog.load_table(f"ice.{made.name}")


def scanned(table: Table, rows: pa.Table, filter: Any) -> list[int]:
    """The rows that pyiceberg itself keeps of all of them."""
    bound = bind(table.schema(), filter, case_sensitive=True)
    return ids(rows.filter(expression_to_pyarrow(bound)))


def random_filter(rng: Random, rows: pa.Table, depth: int = 3) -> Any:
    """A filter as pyiceberg's users write them."""
    if depth and rng.random() < 0.6:
        kind = rng.choice([e.And, e.Or, e.Not])
        if kind is e.Not:
            return e.Not(random_filter(rng, rows, depth - 1))
        return kind(random_filter(rng, rows, depth - 1), random_filter(rng, rows, depth - 1))
    name = rng.choice(SCHEMA.names)
    seen = values(rows, name)
    kinds: list[Any] = [e.IsNull, e.NotNull]
    if name in ("ratio", "single"):
        kinds += [e.IsNaN, e.NotNaN]
        seen = [value for value in seen if not math.isnan(value)]
    if seen:
        kinds += [*_COMPARISONS, e.In, e.NotIn]
    if name == "name":
        kinds += [e.StartsWith, e.NotStartsWith]
    kind = rng.choice(kinds)
    if kind in (e.In, e.NotIn):
        return kind(name, {rng.choice(seen) for _ in range(rng.choice([1, 3, 40]))})
    if kind in (e.StartsWith, e.NotStartsWith):
        return kind(name, rng.choice(seen)[: rng.randint(0, 22)])
    return kind(name, rng.choice(seen)) if kind in _COMPARISONS else kind(name)


@settings(max_examples=120, deadline=None)
@given(seed=st.integers(0, 2**32))
@example(seed=0)
def test_a_scan_finds_the_rows_of_a_full_scan(table: Table, made: IcebergTable, seed: int) -> None:
    """Whatever the filter; and the count is that of the rows, though files are counted by what is known of them."""
    filter = random_filter(Random(seed), made.rows)
    wanted = scanned(table, made.rows, filter)
    scan = table.scan(filter)
    assert ids(scan.to_arrow()) == wanted, filter
    assert scan.count() == len(wanted), filter


@pytest.mark.parametrize(
    "filter",
    [
        e.In("id", set(range(40, 241))),
        e.In("id", set(range(5, 5_005))),
        e.NotIn("id", set(range(5, 5_005))),
        e.LessThan("ratio", math.inf),
        e.GreaterThanOrEqual("ratio", math.inf),
        e.EqualTo("single", -math.inf),
        e.NotEqualTo("small", 7),
        e.Not(e.EqualTo("small", 7)),
        e.EqualTo("ratio", 0.0),
        e.StartsWith("name", "prefix of sixteen k0011"),
        e.NotStartsWith("name", "prefix of sixteen"),
        e.LessThanOrEqual("name", "prefix of sixteen k00119"),
        e.EqualTo("price", "18.50"),
        e.GreaterThan("day", "2024-01-20"),
        e.LessThan("at", "2024-01-03T00:00:00"),
        e.LessThan("when", "2024-01-03T00:00:00+00:00"),
        e.IsNull("empty"),
        e.NotNull("empty"),
        e.AlwaysTrue(),
        e.AlwaysFalse(),
    ],
    ids=str,
)
@pytest.mark.few(1)
def test_filters_that_planners_get_wrong(table: Table, made: IcebergTable, filter: Any) -> None:
    """Long lists, infinities, one value beside nulls, zeros, bounds of long text, literals that travel as text."""
    wanted = scanned(table, made.rows, filter)
    assert ids(table.scan(filter).to_arrow()) == wanted
    assert table.scan(filter).count() == len(wanted)


def test_what_is_proven_is_counted_without_opening_a_file(lake: Lamella, catalog: Catalog, tmp_path: Path) -> None:
    """The files of blocks in which every row matches are not there any more, and the count is right all the same."""
    made = IcebergTable(lake, tmp_path, seed=4)
    table = catalog.load_table(f"ice.{made.name}")
    assert all(task.residual == e.AlwaysTrue() for task in table.scan("id >= 24 and id < 72").plan_files())
    for file in made.files:
        file.unlink()
    assert table.scan("id >= 24 and id < 72").count() == 48
    assert table.scan().count() == 144


def test_blocks_are_skipped(table: Table, made: IcebergTable) -> None:
    """Only those that can match are in the plan."""
    assert [task.file.file_path for task in table.scan("id = 30").plan_files()] == [f"file://{made.files[1]}"]


def test_an_earlier_snapshot_is_read(table: Table, made: IcebergTable, lake: Lamella, catalog: Catalog) -> None:
    """By id, by tag and by time it has the rows that it had."""
    first = pa.concat_tables(made.parts[:3])
    assert [snapshot.snapshot_id for snapshot in table.snapshots()] == [1, 2, 3]
    assert ids(table.scan("id >= 24 and id < 100", snapshot_id=2).to_arrow()) == list(range(24, 72))
    assert ids(table.scan(snapshot_id=2).to_arrow()) == ids(first)
    history = lake.table(f"ice.{made.name}")
    history.tag("half", [each.snapshot_id for each in history.snapshots()][1])
    loaded = catalog.load_table(f"ice.{made.name}")
    assert ids(loaded.scan().use_ref("half").to_arrow()) == ids(first)


def test_columns_that_were_renamed_added_and_dropped_are_read(lake: Lamella, catalog: Catalog, tmp_path: Path) -> None:
    """Old files by their names of then, a new column as null in them; earlier snapshots with their own schema."""
    paths = [tmp_path / f"{number}.parquet" for number in range(2)]
    pq.write_table(pa.table({"id": [1, 2], "b": ["x", "y"], "c": [1.5, None]}), paths[0])
    lake.create_table("ice.evolving", schema_from=f"file://{paths[0]}")
    table = lake.table("ice.evolving")
    table.register([f"file://{paths[0]}"])
    table.evolve([RenameColumn(column="b", name="name"), DropColumn(column="c"), AddColumn(name="extra", type="int64")])
    pq.write_table(pa.table({"id": [3], "name": ["z"], "extra": [9]}), paths[1])
    table.register([f"file://{paths[1]}"])
    loaded = catalog.load_table("ice.evolving")
    assert loaded.scan().to_arrow().sort_by("id").to_pydict() == {
        "id": [1, 2, 3],
        "name": ["x", "y", "z"],
        "extra": [None, None, 9],
    }
    assert loaded.scan("name = 'y'").to_arrow().column("id").to_pylist() == [2]
    assert loaded.scan("extra is null").count() == 2
    assert loaded.scan("extra = 9").count() == 1
    then = loaded.scan(snapshot_id=2)
    assert then.to_arrow().to_pydict() == {"id": [1, 2], "b": ["x", "y"], "c": [1.5, None]}
    # pyiceberg means the columns of today, whatever snapshot it reads
    assert loaded.scan("name = 'x'", snapshot_id=2).to_arrow().column("id").to_pylist() == [1]


def test_a_column_that_widened_is_read(lake: Lamella, catalog: Catalog, tmp_path: Path) -> None:
    """Files with the narrow type and with the wide one."""
    paths = [tmp_path / f"{number}.parquet" for number in range(2)]
    pq.write_table(pa.table({"id": [1, 2], "n": pa.array([5, None], pa.int32())}), paths[0])
    lake.create_table("ice.widened", schema_from=f"file://{paths[0]}")
    table = lake.table("ice.widened")
    table.register([f"file://{paths[0]}"])
    table.evolve([WidenColumn(column="n", type="int64")])
    pq.write_table(pa.table({"id": [3], "n": [2**40]}), paths[1])
    table.register([f"file://{paths[1]}"])
    loaded = catalog.load_table("ice.widened")
    assert loaded.scan().to_arrow().sort_by("id").column("n").to_pylist() == [5, None, 2**40]
    assert loaded.scan("n < 6").count() == 1
    assert loaded.scan(f"n >= {2**40}").to_arrow().column("id").to_pylist() == [3]


def test_an_empty_table_and_an_empty_block_are_read(lake: Lamella, catalog: Catalog, tmp_path: Path) -> None:
    """No rows, with the columns that there are."""
    file = tmp_path / "none.parquet"
    pq.write_table(pa.table({"id": pa.array([], pa.int64())}), file)
    lake.create_table("ice.empty", schema_from=f"file://{file}")
    loaded = catalog.load_table("ice.empty")
    assert (loaded.scan().count(), loaded.scan("id = 1").to_arrow().num_rows) == (0, 0)
    lake.table("ice.empty").register([f"file://{file}"])
    loaded = catalog.load_table("ice.empty")
    assert (loaded.scan().count(), loaded.scan("id is null").to_arrow().column_names) == (0, ["id"])


def test_the_catalog_is_listed(catalog: Catalog, made: IcebergTable) -> None:
    """Namespaces and tables, and which there are not."""
    assert ("ice",) in catalog.list_namespaces()
    assert ("ice", made.name) in catalog.list_tables("ice")
    assert catalog.table_exists(f"ice.{made.name}")
    assert not catalog.table_exists("ice.nope")
    assert catalog.namespace_exists("ice")
    assert not catalog.namespace_exists("nope")
    with pytest.raises(NoSuchTableError):
        catalog.load_table("ice.nope")


def test_a_limit_is_read(table: Table) -> None:
    """No more rows than asked for."""
    assert table.scan("id >= 30", limit=5).to_arrow().num_rows == 5


def test_a_plan_of_many_parts_is_read(lake: Lamella, rest_url: str, tmp_path: Path) -> None:
    """A filter so large that each part has few files; the client fetches the parts of parts."""
    made = IcebergTable(lake, tmp_path, seed=9, blocks=24, size=8)
    table = load_catalog("large", type="rest", uri=f"{rest_url}/iceberg").load_table(f"ice.{made.name}")
    many = {f"k{number:05}\U0001f600" + "x" * 40 for number in range(20_000)} | set(values(made.rows, "name")[::7])
    filter = e.In("name", many)
    assert ids(table.scan(filter).to_arrow()) == scanned(table, made.rows, filter)


@pytest.mark.parametrize("odd", ["ID", "numbered"])
def test_files_with_other_names_or_numbers_are_not_read_wrong(
    lake: Lamella, catalog: Catalog, tmp_path: Path, odd: str
) -> None:
    """pyiceberg would find no value in them, or another column's: the table is refused while it has such files."""
    paths = [tmp_path / f"{number}.parquet" for number in range(2)]
    pq.write_table(pa.table({"id": [1], "b": ["x"]}), paths[0])
    name = f"ice.odd_{odd.lower()}"
    lake.create_table(name, schema_from=f"file://{paths[0]}")
    fields = [pa.field("ID", pa.int64()), pa.field("b", pa.string())]
    if odd == "numbered":
        fields = [
            pa.field(each, kind, metadata={"PARQUET:field_id": str(number)})
            for number, (each, kind) in enumerate([("b", pa.string()), ("id", pa.int64())], 1)
        ]
    given = {"ID": [2], "id": [2], "b": ["y"]}
    schema = pa.schema(fields)
    pq.write_table(pa.table({each: given[each] for each in schema.names}, schema=schema), paths[1])
    table = lake.table(name)
    table.register([f"file://{paths[0]}"])
    earlier = catalog.load_table(name)
    table.register([f"file://{paths[1]}"])
    with pytest.raises(RESTError, match="1 files of the table"):
        catalog.load_table(name)
    with pytest.raises(RESTError, match="1 files of the table"):
        earlier.scan().to_arrow()
    table.commit(removed=[f"file://{paths[1]}"])
    assert catalog.load_table(name).scan().to_arrow().to_pydict() == {"id": [1], "b": ["x"]}


def test_a_client_shows_its_key_either_way(start_server: Callable[..., ServerProcess], tmp_path: Path) -> None:
    """As a token, and as the secret of client credentials; without one nothing is answered."""
    root = key_text(b"r" * 32)
    file = tmp_path / "f.parquet"
    pq.write_table(pa.table({"id": [1, 2]}), file)
    server = start_server(
        warehouse=tmp_path / "warehouse",
        auth="true",
        root_key_sha256=key_sha256(root),
        allowed_locations=f'{{"*": ["file://{tmp_path}"]}}',
    )
    with Lamella(server.url, token=root) as lake:
        lake.create_namespace("db")
        lake.create_table("db.t", schema_from=f"file://{file}")
        lake.table("db.t").register([f"file://{file}"])
        key = lake.keys.create("reader", [Grant(role="read", namespace="db")]).key
    uri = f"{server.url}/iceberg"
    tokens = {"oauth2-server-uri": f"{uri}/v1/oauth/tokens"}
    for shown in ({"token": key}, {"credential": f"reader:{key}", **tokens}, {"credential": key, **tokens}):
        loaded = load_catalog("guarded", type="rest", uri=uri, **shown).load_table("db.t")
        assert loaded.scan("id = 2").to_arrow().to_pydict() == {"id": [2]}
    with pytest.raises(UnauthorizedError):
        load_catalog("guarded", type="rest", uri=uri)
    with pytest.raises((OAuthError, UnauthorizedError)):
        load_catalog("guarded", type="rest", uri=uri, credential="reader:wrong", **tokens)
