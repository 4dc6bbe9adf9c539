"""Sources with collated text: refused as a whole, or file by file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

from lamella.client import Lamella
from lamella.snapshot.errors import InvalidSchema, SchemaMismatch
from support.delta_logs import actions, commit

ROWS = pa.table({"a": [1, 2], "s": ["ABC", "abc"], "l": [["x"], ["y"]], "st": [{"in": "p"}, {"in": "q"}]})
COLLATED: list[tuple[str, dict[str, Any]]] = [
    ("s", {"s": "spark.UTF8_LCASE"}),
    ("l", {"l.element": "icu.UNICODE_CI"}),
    ("st.in", {"in": "spark.UTF8_BINARY_RTRIM"}),
]


def collate(folder: Path, column: str, named: dict[str, Any]) -> None:
    """Commit a schema in which a column has a collation, as Spark writes it: a writer's feature, and no reader's."""
    metadata = actions(folder, "metaData")[-1]
    schema = json.loads(metadata["schemaString"])
    fields = schema["fields"]
    *above, last = column.split(".")
    for name in above:
        fields = next(field for field in fields if field["name"] == name)["type"]["fields"]
    next(field for field in fields if field["name"] == last)["metadata"] = {"__COLLATIONS": named}
    features = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["collations-preview"]}
    commit(folder, {"metaData": {**metadata, "schemaString": json.dumps(schema)}}, {"protocol": features})


@pytest.mark.parametrize(("column", "named"), COLLATED)
def test_a_delta_table_with_collated_text_is_refused(
    lake: Lamella, name: str, tmp_path: Path, column: str, named: dict[str, Any]
) -> None:
    """In a column, a list or a struct, with the path of the text; by bytes rows would be left out that match there."""
    write_deltalake(tmp_path, ROWS)
    collate(tmp_path, column, named)
    with pytest.raises(InvalidSchema, match=next(iter(named.values()))):
        lake.create_external(name, {"kind": "delta", "location": str(tmp_path)})


def test_a_delta_table_whose_text_gets_a_collation_is_not_brought_up_to_date(
    lake: Lamella, name: str, tmp_path: Path
) -> None:
    """The refresh is refused, and the table stays as it was."""
    write_deltalake(tmp_path, ROWS)
    lake.create_external(name, {"kind": "delta", "location": str(tmp_path)})
    table = lake.table(name)
    table.refresh()
    collate(tmp_path, *COLLATED[0])
    with pytest.raises(InvalidSchema, match="UTF8_LCASE"):
        table.refresh()
    assert table.scan().to_arrow().num_rows == 2


def test_a_collation_that_compares_bytes_is_none(lake: Lamella, name: str, tmp_path: Path) -> None:
    """It is what text is compared by anyway."""
    write_deltalake(tmp_path, ROWS)
    collate(tmp_path, "s", {"s": "spark.UTF8_BINARY"})
    lake.create_external(name, {"kind": "delta", "location": str(tmp_path)})
    assert lake.table(name).refresh().added == 1


def test_of_a_directory_only_files_without_collations_are_taken(lake: Lamella, name: str, tmp_path: Path) -> None:
    """The others are named with the reason."""
    plain = pa.table({"a": [1], "s": ["x"]})
    pq.write_table(plain, tmp_path / "a.parquet")
    field = {"name": "s", "type": "string", "metadata": {"__COLLATIONS": {"s": "spark.UTF8_LCASE"}}}
    row = json.dumps({"type": "struct", "fields": [{"name": "a", "type": "long", "metadata": {}}, field]})
    pq.write_table(
        plain.replace_schema_metadata({"org.apache.spark.sql.parquet.row.metadata": row}), tmp_path / "b.parquet"
    )
    lake.create_external(name, {"kind": "directory", "location": str(tmp_path)})
    answer = lake.table(name).refresh()
    assert answer.added == 1
    (left,) = answer.refused
    assert left.path.endswith("/b.parquet")
    assert left.code == SchemaMismatch.code
    assert "UTF8_LCASE" in left.reason
