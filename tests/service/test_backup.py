"""Exports of a catalog: what is in them, that they are of one moment, and that they come back as they were."""

from __future__ import annotations

import gzip
import io
import json
import random
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import sqlalchemy as sa

from lamella.service.backup import export_catalog, import_catalog, read_catalog
from lamella.service.backup.archive import ArchiveReader
from lamella.service.backup.check import look_for, snapshots_in, snapshots_of, verify_catalog
from lamella.service.backup.export import columns_of
from lamella.service.catalog import open_catalog
from lamella.service.catalog.engine import WRITES, catalog_url, open_engine
from lamella.service.catalog.migrate import migrate
from lamella.service.catalog.schema import metadata
from lamella.snapshot.errors import Conflict, InvalidRequest, UnsupportedFormat
from lamella.snapshot.storage import FsspecStore
from lamella.snapshot.wire import NamespaceInfo
from support.own_app import NewOwn

KINDS = ["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)]
#: A database of that kind, empty.
NewEngine = Callable[[str], sa.Engine]
WAREHOUSE = "file:///warehouse"


@pytest.fixture
def new_engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[NewEngine]:
    """Makes connections to empty databases."""
    made: list[sa.Engine] = []

    def make(kind: str) -> sa.Engine:
        url = str(tmp_path / f"{len(made)}.db")
        if kind == "postgresql":
            url = request.getfixturevalue("new_postgres_database")()
        made.append(open_engine(catalog_url(url), timeout_s=10, connections=4))
        return made[-1]

    yield make
    for engine in made:
        engine.dispose()


def value_of(column: sa.Column[Any], number: int, draw: random.Random) -> Any:
    """Something that the column can hold; keys differ by the number."""
    match column.type:
        case sa.Boolean():
            return draw.random() < 0.5
        case sa.Integer():
            return number if column.primary_key else draw.randrange(1 << (62 if _is_big(column) else 31))
        case sa.Float():
            return draw.choice([0.0, 1e300, -1.5, draw.random()])
        case sa.LargeBinary():
            return draw.randbytes(draw.randrange(40))
        case sa.String(length=length):
            text = f"{number}·ä\n\"\\'{draw.random()}"
            return text[:length] if length is not None else text
    raise AssertionError(column)


def _is_big(column: sa.Column[Any]) -> bool:
    return isinstance(column.type, sa.BigInteger)


def fill(engine: sa.Engine, rows: int = 7) -> None:
    """Rows in every table that the schema has, with every kind of value, nulls, and keys that fit together."""
    draw = random.Random(6)
    made: dict[str, list[dict[str, Any]]] = {}
    with engine.begin() as connection:
        connection.execute(sa.delete(metadata.tables["sweeps"]))
        for table in metadata.sorted_tables:
            found = made[table.name] = []
            for number in range(1, rows + 1):
                row = {column.key: value_of(column, number, draw) for column in table.columns}
                for column in table.columns:
                    if column.nullable and draw.random() < 0.5:
                        row[column.key] = None
                for key in table.foreign_key_constraints:
                    pointed = made[key.referred_table.name][number - 1]
                    for element in key.elements:
                        row[element.parent.key] = pointed[element.column.key]
                found.append(row)
            connection.execute(table.insert(), found)


def content(engine: sa.Engine) -> dict[str, list[tuple[Any, ...]]]:
    """All rows of all tables."""
    found = {}
    with engine.connect() as connection:
        for table in metadata.sorted_tables:
            found[table.name] = sorted((tuple(row) for row in connection.execute(table.select())), key=repr)
    return found


def exported(engine: sa.Engine) -> bytes:
    """The file of a catalog."""
    file = io.BytesIO()
    export_catalog(engine, file, warehouse=WAREHOUSE, made_ms=1)
    return file.getvalue()


def lines(data: bytes) -> list[Any]:
    """What is in a file."""
    return [json.loads(line) for line in gzip.decompress(data).splitlines()]


@pytest.mark.parametrize("source", KINDS)
@pytest.mark.parametrize("target", KINDS)
def test_every_row_of_every_table_comes_back(new_engine: NewEngine, source: str, target: str) -> None:
    """From either kind of database to either, values as they were, and what is written next has numbers of its own."""
    old, new = new_engine(source), new_engine(target)
    migrate(old)
    fill(old)
    outcome = import_catalog(new, io.BytesIO(exported(old)))
    assert content(new) == content(old)
    assert outcome.rows == dict.fromkeys(metadata.tables, 7)
    catalog = open_catalog(new.url.render_as_string(hide_password=False), auto_migrate=False)
    catalog.create_namespace(NamespaceInfo(name="after"), now_ms=1)
    assert catalog.namespace("after") == NamespaceInfo(name="after")
    catalog.close()


def test_every_table_is_exported(new_engine: NewEngine) -> None:
    """A new table of the schema is in the file."""
    engine = new_engine("sqlite")
    migrate(engine)
    names = {line["table"] for line in lines(exported(engine)) if isinstance(line, dict) and "table" in line}
    assert names == set(metadata.tables)


def test_every_column_is_of_a_kind_that_exports_know() -> None:
    """A new type of column would otherwise be noticed only by whoever makes the first backup."""
    for table in metadata.tables.values():
        assert len(columns_of(table)) == len(table.columns)


@pytest.mark.parametrize("kind", KINDS)
def test_an_export_of_an_older_schema_comes_back_and_is_migrated(new_engine: NewEngine, kind: str) -> None:
    """A backup from before an upgrade can be restored by the release after it."""
    old, new = new_engine(kind), new_engine(kind)
    migrate(old, to="0002")
    with old.begin() as connection:
        connection.execute(sa.text("INSERT INTO namespaces (name, properties, created_at_ms) VALUES ('db', '{}', 5)"))
        connection.execute(sa.text("INSERT INTO secrets VALUES ('s', :value)"), {"value": b"\x00\xff"})
    data = exported(old)
    outcome = import_catalog(new, io.BytesIO(data))
    assert outcome.header.schema_revision == "0002"
    with new.connect() as connection:
        assert connection.execute(sa.text("SELECT version_num FROM alembic_version")).scalar_one() > "0002"
        assert connection.execute(metadata.tables["secrets"].select()).one() == ("s", b"\x00\xff")
        assert connection.execute(sa.text("SELECT table_id, epoch FROM sweeps")).all() == [("*", 0)]


@pytest.mark.parametrize("kind", KINDS)
def test_only_an_empty_database_is_filled(new_engine: NewEngine, kind: str) -> None:
    """One that a service has begun to use is left as it is; one that was only set up will do."""
    old, used, set_up, behind = (new_engine(kind) for _ in range(4))
    migrate(old)
    fill(old)
    data = exported(old)
    migrate(set_up)
    import_catalog(set_up, io.BytesIO(data))
    assert content(set_up) == content(old)
    migrate(used)
    with used.begin() as connection:
        connection.execute(sa.text("INSERT INTO secrets VALUES ('page tokens', :value)"), {"value": b"x"})
    before = content(used)
    with pytest.raises(Conflict, match="secrets"):
        import_catalog(used, io.BytesIO(data))
    assert content(used) == before
    migrate(behind, to="0004")
    with pytest.raises(Conflict, match="empty database"):
        import_catalog(behind, io.BytesIO(data))


def damaged(data: bytes) -> Iterator[tuple[str, bytes]]:
    """Ways in which a file can be wrong, each with its name."""
    plain = gzip.decompress(data).splitlines(keepends=True)
    yield "cut off", data[: len(data) // 2]
    yield "no end", gzip.compress(b"".join(plain[:-1]))
    yield "half a line", gzip.compress(b"".join(plain)[:-5])
    yield "a row less", gzip.compress(b"".join(line for n, line in enumerate(plain) if n != 2))
    yield "a row twice", gzip.compress(b"".join([*plain[:3], plain[2], *plain[3:]]))
    yield "another value", gzip.compress(b"".join(plain).replace("·ä".encode(), "·o".encode(), 1))
    yield "another warehouse", gzip.compress(b"".join(plain).replace(b"file:///warehouse", b"file:///elsewhere"))
    yield "more behind", gzip.compress(b"".join([*plain, plain[2]]))
    yield "not gzip", b"".join(plain)
    yield "nothing", b""
    yield "something else", gzip.compress(b'{"a": 1}\n')
    yield "not utf-8", gzip.compress(b"\xff\xfe\n")


def is_refused(take: Callable[[io.BytesIO], object], data: bytes) -> bool:
    """Whether whoever reads a file says that it is none."""
    try:
        take(io.BytesIO(data))
    except InvalidRequest:
        return True
    return False


def test_a_file_that_is_not_whole_is_never_taken(new_engine: NewEngine) -> None:
    """However it is wrong, it is refused, and the database is as empty as before."""
    old, new = new_engine("sqlite"), new_engine("sqlite")
    migrate(old)
    fill(old)
    data = exported(old)
    for name, wrong in damaged(data):
        for take in (lambda file: import_catalog(new, file), read_catalog, snapshots_in):
            assert is_refused(take, wrong), name
        assert sa.inspect(new).get_table_names() == [], name
    import_catalog(new, io.BytesIO(data))
    assert content(new) == content(old)


def test_any_changed_byte_of_a_file_is_noticed(new_engine: NewEngine) -> None:
    """Bytes of the text inside, one at a time: it is refused, whatever stood there."""
    engine = new_engine("sqlite")
    migrate(engine)
    fill(engine, rows=2)
    plain = gzip.decompress(exported(engine))
    draw = random.Random(1)
    for position in draw.sample(range(len(plain)), 300):
        wrong = plain[:position] + bytes([plain[position] ^ (1 << draw.randrange(8))]) + plain[position + 1 :]
        with pytest.raises((InvalidRequest, UnsupportedFormat)):
            read_catalog(io.BytesIO(gzip.compress(wrong, 1)))


@pytest.mark.parametrize(
    ("change", "match"), [({"lamella_catalog": 2}, "format 2"), ({"schema_revision": "9999"}, "9999")]
)
def test_a_file_of_a_newer_release_is_refused(new_engine: NewEngine, change: dict[str, Any], match: str) -> None:
    """With what it has that this release does not know."""
    old, new = new_engine("sqlite"), new_engine("sqlite")
    migrate(old)
    plain = gzip.decompress(exported(old)).splitlines(keepends=True)
    header = {**json.loads(plain[0]), **change}
    with pytest.raises(UnsupportedFormat, match=match):
        import_catalog(new, io.BytesIO(gzip.compress(msgspec.json.encode(header) + b"\n" + b"".join(plain[1:]))))
    assert sa.inspect(new).get_table_names() == []


def test_keys_can_be_left_out_of_what_comes_back(new_engine: NewEngine) -> None:
    """An old export must not bring back a key that was revoked since."""
    old, new = new_engine("sqlite"), new_engine("sqlite")
    migrate(old)
    fill(old)
    import_catalog(new, io.BytesIO(exported(old)), without_keys=True)
    after = content(new)
    assert after.pop("api_keys") == []
    before = content(old)
    del before["api_keys"]
    assert after == before


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.few(1)
def test_an_export_is_of_one_moment(new_engine: NewEngine, kind: str) -> None:
    """While others write, what belongs together is in the file together or not at all, in every file."""
    engine = new_engine(kind)
    migrate(engine)
    names, rates = metadata.tables["namespaces"], metadata.tables["prune_rates"]
    over = threading.Event()

    def write() -> None:
        number = 0
        sums = dict.fromkeys(("prunes", "considered_blocks", "kept_blocks", "bytes_total", "kept_bytes", "ms"), 0)
        while not over.is_set():
            number += 1
            with engine.execution_options(**{WRITES: True}).begin() as connection:
                row = {"name": f"n{number}", "properties": "{}", "created_at_ms": number}
                connection.execute(names.insert(), row)
                connection.execute(rates.insert(), {"table_id": f"t{number}", "bucket_ms": number, **sums})

    writer = threading.Thread(target=write)
    writer.start()
    try:
        counts = []
        for _ in range(20):
            rows = read_catalog(io.BytesIO(exported(engine))).rows
            assert rows["namespaces"] == rows["prune_rates"]
            counts.append(rows["namespaces"])
    finally:
        over.set()
        writer.join()
    assert counts == sorted(counts)
    assert counts[-1] > counts[0]


def test_a_database_without_a_catalog_is_not_exported(new_engine: NewEngine) -> None:
    """An empty file would be taken for a backup."""
    with pytest.raises(InvalidRequest, match="no catalog"):
        exported(new_engine("sqlite"))


def test_files_come_in_order_so_that_keys_fit(new_engine: NewEngine) -> None:
    """What points is behind what it points at, and the file can be read in one go."""
    engine = new_engine("sqlite")
    migrate(engine)
    order = [start.table for start, rows in ArchiveReader(io.BytesIO(exported(engine))).tables() if not list(rows)]
    assert order.index("namespaces") < order.index("tables") < order.index("snapshots") < order.index("tags")


def test_what_an_old_export_points_at_may_be_gone(new_own: NewOwn, new_engine: NewEngine) -> None:
    """Objects that a clean-up deleted after the export are missed by table, and verification says the same."""
    own = new_own(retention_max_age_s=0, vacuum_min_age_s=0)
    catalog_file = own.folder / "warehouse" / "_catalog.db"
    old = open_engine(catalog_url(str(catalog_file)), timeout_s=10, connections=2)
    own.commit(own.lists(4))
    data = exported(old)
    before = look_for(snapshots_of(old), own.store, threads=4)
    assert (before.tables, before.snapshots, before.gone) == (1, 2, ())
    assert look_for(snapshots_in(io.BytesIO(data)), own.store, threads=4) == before
    own.commit(own.lists(4))
    assert own.clean_up()["garbage"]["snapshot"]["objects"] >= 2
    new = new_engine("sqlite")
    import_catalog(new, io.BytesIO(data))
    after = look_for(snapshots_of(new), own.store, threads=4)
    assert [(gone.table, gone.is_current, gone.snapshots) for gone in after.lost] == [("db.t", True, 2)]
    assert look_for(snapshots_in(io.BytesIO(data)), own.store, threads=4) == after
    restored = open_catalog(new.url.render_as_string())
    (verified,) = verify_catalog(
        restored, FsspecStore(), f"file://{own.folder}/warehouse", files=True, history=9, workers=2
    )
    assert not verified.is_clean
    restored.close()
    old.dispose()
