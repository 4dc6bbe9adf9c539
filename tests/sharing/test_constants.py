"""Values of folders are Delta's partition values: the real client reads them, in both forms of answers."""

from __future__ import annotations

import json
import uuid
from typing import Any, Final

import pandas as pd
import pyarrow as pa
import pytest

from lamella.client.http import Table
from lamella.snapshot.schema import Column
from support.folder_tables import COLUMNS, HIVE_NULL
from support.service_api import fresh_name, parquet_bytes
from support.shared_lake import SharedLake

pytestmark = pytest.mark.s3

#: Each text of a folder, as Delta's protocol writes the value.
_VALUES: Final[dict[str, list[str | None]]] = {
    "n": ["1", "-7", "2147483647", None],
    "big": ["9007199254740993", "0", None],
    "s": ["a b", "Ã©/=", "zz", None],
    "d": ["2024-02-29", "1969-12-31", None],
    "at": ["2024-02-29T10:00:00.500000Z", "1960-01-01T00:00:00.000000Z"],
    "price": ["123456789012345678901234567890.12", "-0.05", None],
    "yes": ["true", "false"],
    "x": ["0.25", "-1.5", "0.0", None],
}


def shared(lake: SharedLake, columns: tuple[str, ...], *folders: dict[str, str]) -> tuple[str, Table]:
    """A table with one file in each folder."""
    name = f"sales.{fresh_name('folders')}"
    kinds = {"id": "int64"} | {column: COLUMNS[column][0] for column in columns}
    lake.operator.create_table(name, schema=[Column(name=each, type=kind) for each, kind in kinds.items()])
    root = f"{lake.data}/{uuid.uuid4().hex}"
    table = lake.operator.table(name)
    for number, texts in enumerate(folders):
        below = "/".join(f"{column}={text}" for column, text in texts.items())
        location = f"{root}/{below}/{number}.parquet" if below else f"{root}/{number}.parquet"
        lake.store.put(location, parquet_bytes(pa.table({"id": pa.array([2 * number, 2 * number + 1])})))
        table.register([location])
    return name, table


def cells(frame: pd.DataFrame) -> list[list[str]]:
    """The rows by id, as texts, in which all nulls are one."""
    ordered = frame.sort_values("id")
    return [["null" if pd.isna(cell) else plain(cell) for cell in row] for row in ordered.itertuples(index=False)]


def plain(cell: Any) -> str:
    """A value as text, however the client holds it: pandas has no integer that is null."""
    if isinstance(cell, pd.Timestamp):
        return str(cell.tz_convert("UTC") if cell.tzinfo else cell.tz_localize("UTC"))
    if isinstance(cell, float) and cell.is_integer():
        return str(int(cell))
    return str(cell)


@pytest.mark.parametrize("column", _VALUES)
@pytest.mark.few(3)
def test_each_value_has_its_form_in_the_protocol(lake: SharedLake, column: str) -> None:
    """The metadata names the column; each file says its value, and nothing about it in its statistics."""
    name, _ = shared(lake, (column,), *({column: text} for text in COLUMNS[column][1]))
    for able in ("responseformat=parquet", "responseformat=delta"):
        _, metadata, *files = lake.recipient.lines(name, able=able)
        members = metadata["metaData"].get("deltaMetadata", metadata["metaData"])
        assert members["partitionColumns"] == [column]
        found = [file["file"].get("deltaSingleAction", {}).get("add", file["file"]) for file in files]
        assert {file["partitionValues"][column] for file in found} == set(_VALUES[column])
        assert all(column not in json.loads(file["stats"])["minValues"] for file in found)


@pytest.mark.parametrize("is_delta", [False, True])
@pytest.mark.parametrize("column", _VALUES)
@pytest.mark.few(5)
def test_the_client_reads_the_values(lake: SharedLake, column: str, is_delta: bool) -> None:
    """Of each type, also null."""
    texts = [text for text in COLUMNS[column][1] if column != "big" or text != HIVE_NULL]  # pandas makes them floats
    name, table = shared(lake, (column,), *({column: text} for text in texts))
    wanted = table.scan(store=lake.store).to_arrow().to_pandas(date_as_object=True)
    assert cells(lake.recipient.load(name, use_delta_format=is_delta)) == cells(wanted)


@pytest.mark.parametrize(
    ("columns", "folders", "why"),
    [
        (("n", "s"), ({"n": "1", "s": "x"}, {"n": "1"}), "lack different columns"),
        (("n",), ({"n": "1"}, {}), "lack different columns"),
        (("x",), ({"x": "NaN"},), "has the value nan"),
        (("x",), ({"x": "-0.0"},), "has the value -0.0"),
    ],
)
def test_what_the_protocol_cannot_say_is_refused(
    lake: SharedLake, columns: tuple[str, ...], folders: tuple[dict[str, str], ...], why: str
) -> None:
    """A value in some files only, and values that are compared in another way."""
    name, _ = shared(lake, columns, *folders)
    answer = lake.recipient.query(name)
    assert (answer.status_code, answer.json()["errorCode"]) == (406, "NOT_EXPRESSIBLE")
    assert why in answer.json()["message"]
