"""A purge by an Iceberg client deletes its files with the next clean-up, and no file that another table names."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import BadRequestError
from pyiceberg.table import Table

from fixtures_server import ServerProcess, StartServer, start_shared
from lamella.client.http import Lamella
from lamella.snapshot.errors import ReaderFeatureMissing
from lamella.snapshot.wire import VacuumAnswer

ROWS = pa.table({"id": pa.array(range(10), pa.int64())})


class Purged:
    """A service whose clean-up looks at no file's age, with pyiceberg as its client and a namespace of its own."""

    def __init__(self, server: ServerProcess, shared: Path) -> None:
        self.server = server
        self.catalog: Catalog = load_catalog("lake", type="rest", uri=f"{server.url}/iceberg")
        self.namespace = f"n{uuid.uuid4().hex}"
        self.catalog.create_namespace(self.namespace)
        self.shared = shared / self.namespace
        self.shared.mkdir()

    def create(self, name: str, *, is_outside: bool = False) -> Table:
        """A new table, in its folder in the warehouse or in the allowed location."""
        location = f"file://{self.shared}/{name}" if is_outside else None
        return self.catalog.create_table(self.name(name), schema=ROWS.schema, location=location)

    def name(self, table: str) -> str:
        """The full name of a table."""
        return f"{self.namespace}.{table}"

    def folder(self, table: Table) -> Path:
        """The folder of a table in the warehouse."""
        return Path(table.location().removeprefix("file://")).parent

    def vacuum(self, *, execute: bool = True, external: bool = False) -> VacuumAnswer:
        """The answer of a clean-up of dropped tables."""
        with Lamella(self.server.url) as lake:
            return lake.purge_dropped(execute=execute, include_external_blocks=external)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An allowed location outside of the warehouse."""
    return tmp_path_factory.mktemp("shared")


@pytest.fixture(scope="module")
def server(
    tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config, shared: Path
) -> Iterator[ServerProcess]:
    """A service."""
    folder = tmp_path_factory.mktemp("purge")
    settings = {
        "warehouse": folder / "warehouse",
        "vacuum_min_age_s": 0,
        "drop_grace_s": 0,
        "allowed_locations": json.dumps({"*": [f"file://{shared}"]}),
    }
    server = start_shared(pytestconfig, folder, settings)
    yield server
    assert server.stop() == 0, server.log_text()


@pytest.fixture
def purged(server: ServerProcess, shared: Path) -> Purged:
    """A new namespace of it."""
    return Purged(server, shared)


def files(folder: Path) -> list[Path]:
    """All files below a folder."""
    return sorted(each for each in folder.rglob("*") if each.is_file())


def changed(table: Table) -> None:
    """Give a table several snapshots, with deleted files."""
    for _ in range(3):
        table.append(ROWS)
    table.delete("id < 5")


def test_a_purge_deletes_the_files_of_the_client_with_the_next_clean_up(purged: Purged) -> None:
    """All of them, and Lamella's; a dry run says so before. Another table keeps its own."""
    table, other = purged.create("t"), purged.create("other")
    changed(table)
    changed(other)
    with Lamella(purged.server.url) as lake:
        lake.table(purged.name("t")).append(ROWS)
    assert purged.catalog.load_table(purged.name("t")).scan().count() == 25
    folder, expected = purged.folder(table), files(purged.folder(other))
    purged.catalog.purge_table(purged.name("t"))
    assert len(files(folder / "iceberg")) > 10
    said = purged.vacuum(execute=False)
    assert said.garbage["iceberg"].objects == len(files(folder / "iceberg"))
    done = purged.vacuum()
    assert files(folder) == []
    assert done.garbage["iceberg"] == said.garbage["iceberg"]
    assert files(purged.folder(other)) == expected
    assert purged.catalog.load_table(purged.name("other")).scan().count() == 15
    assert purged.vacuum().tables == ()


def test_a_drop_without_a_purge_keeps_the_files_of_the_client(purged: Purged) -> None:
    """Also after the clean-up, so that the table can be registered again, here or elsewhere."""
    table = purged.create("t")
    changed(table)
    expected = files(purged.folder(table) / "iceberg")
    purged.catalog.drop_table(purged.name("t"))
    purged.vacuum()
    assert files(purged.folder(table)) == expected


def test_a_file_that_another_table_names_is_not_deleted(purged: Purged) -> None:
    """It goes with the other table."""
    table, other = purged.create("t"), purged.create("other")
    changed(table)
    file = next(each.file for each in table.scan().plan_files())
    other.add_files([file.file_path])
    purged.catalog.purge_table(purged.name("t"))
    done = purged.vacuum()
    left = files(purged.folder(table))
    assert [each for each in left if "iceberg" in each.parts] == [Path(file.file_path.removeprefix("file://"))]
    assert any("another table" in each.reason for each in done.left)
    assert purged.catalog.load_table(purged.name("other")).scan().to_arrow().num_rows == file.record_count
    purged.catalog.purge_table(purged.name("other"))
    purged.vacuum()
    purged.vacuum()
    assert files(purged.folder(table)) == []
    assert files(purged.folder(other)) == []


def test_files_of_a_dropped_table_stay_while_a_registered_one_names_them(
    start_server: StartServer, tmp_path: Path
) -> None:
    """Also those of Lamella's writers, when the grace period is over; a purged table cannot be registered."""
    started = start_server(warehouse=tmp_path / "warehouse", vacuum_min_age_s=0, drop_grace_s=0)
    lake = Purged(started, tmp_path)
    table = lake.create("t")
    table.append(ROWS)
    with Lamella(started.url) as client:
        client.table(lake.name("t")).append(ROWS)
    location = lake.catalog.load_table(lake.name("t")).metadata_location
    lake.catalog.drop_table(lake.name("t"))
    again = lake.catalog.register_table(lake.name("again"), location)
    lake.vacuum()
    assert again.scan().to_arrow().num_rows == 20
    lake.catalog.purge_table(lake.name("again"))
    lake.vacuum()
    lake.vacuum()
    expected = files(lake.folder(table))
    assert {each.relative_to(lake.folder(table)).parts[0] for each in expected} == {"iceberg"}  # dropped, not purged
    other = lake.create("other")
    lake.catalog.purge_table(lake.name("other"))
    with pytest.raises(BadRequestError, match="purged"):
        lake.catalog.register_table(lake.name("again"), other.metadata_location)


def test_young_files_stay_until_they_are_old_enough(start_server: StartServer, tmp_path: Path) -> None:
    """A purge is no exception to the lowest age of what a clean-up deletes."""
    lake = Purged(start_server(warehouse=tmp_path / "warehouse", vacuum_min_age_s=3_600), tmp_path)
    table = lake.create("t")
    changed(table)
    before = files(lake.folder(table))
    lake.catalog.purge_table(lake.name("t"))
    assert lake.vacuum().tables
    assert files(lake.folder(table)) == before


def test_files_in_other_allowed_locations_go_with_the_option_for_external_blocks(purged: Purged) -> None:
    """Those that the metadata names, and no others in that folder, nor those of another table."""
    table, other = purged.create("t", is_outside=True), purged.create("other", is_outside=True)
    changed(table)
    changed(other)
    table.add_files([next(each.file.file_path for each in other.scan().plan_files())])
    (purged.shared / "t" / "notes.txt").write_text("mine")
    purged.catalog.purge_table(purged.name("t"))
    expected = files(purged.shared / "other")
    done = purged.vacuum(external=True)
    assert files(purged.shared / "t") == [purged.shared / "t" / "notes.txt"]
    assert files(purged.shared / "other") == expected
    assert done.garbage["external"].objects > 10
    assert purged.catalog.load_table(purged.name("other")).scan().count() == 15


def test_without_that_option_files_outside_of_the_warehouse_stay(purged: Purged) -> None:
    """As registered files do."""
    table = purged.create("t", is_outside=True)
    changed(table)
    before = files(purged.shared)
    purged.catalog.purge_table(purged.name("t"))
    purged.vacuum()
    assert files(purged.shared) == before


def test_a_file_that_changed_since_it_was_committed_stays(purged: Purged) -> None:
    """It is no longer the table's."""
    purged.create("t", is_outside=True).append(ROWS)
    (data,) = (purged.shared / "t" / "data").iterdir()
    data.write_bytes(b"something else")
    purged.catalog.purge_table(purged.name("t"))
    done = purged.vacuum(external=True)
    assert files(purged.shared) == [data]
    assert {each.location for each in done.left} == {f"file://{data}"}


def test_nothing_is_deleted_while_another_tables_metadata_cannot_be_read(purged: Purged) -> None:
    """Its files are unknown; the answer says so."""
    table, other = purged.create("t"), purged.create("other")
    changed(table)
    changed(other)
    snapshot = other.current_snapshot()
    assert snapshot is not None
    hidden = Path(snapshot.manifest_list.removeprefix("file://"))
    data = hidden.read_bytes()
    hidden.unlink()
    before = files(purged.folder(table))
    purged.catalog.purge_table(purged.name("t"))
    done = purged.vacuum()
    assert files(purged.folder(table)) == before
    assert any(purged.name("other") in each.reason for each in done.left)
    hidden.write_bytes(data)
    purged.vacuum()
    assert files(purged.folder(table)) == []


def test_a_registered_file_stays_that_only_the_metadata_of_an_iceberg_table_names(purged: Purged) -> None:
    """Lamella could not read the commit that added it, so no block of that table says so."""
    foreign = purged.create("foreign")
    foreign.append(ROWS)
    (data,) = [each.file.file_path for each in foreign.scan().plan_files()]
    file = purged.shared / "a.parquet"
    pq.write_table(ROWS, file)
    purged.create("other").add_files([data, f"file://{file}"])  # the first is in another table's folder
    with Lamella(purged.server.url) as lake:
        lake.create_table(purged.name("own"), schema_from=str(file))
        lake.table(purged.name("own")).register([str(file)])
        with pytest.raises(ReaderFeatureMissing):
            lake.table(purged.name("other")).scan().to_arrow()
        lake.drop_table(purged.name("own"), purge=True)
    purged.vacuum(external=True)
    assert file.exists()
    purged.catalog.purge_table(purged.name("other"))
    purged.vacuum()
    assert file.exists()
