"""Deleted rows of shared tables: deletion vectors in Delta's form, which the real client applies."""

from __future__ import annotations

import json
from typing import Any

import pytest

from lamella.client.http import Table
from lamella.snapshot.deletes import decode_inline_vector, decode_vector
from lamella.snapshot.manifest import Block
from sharing.test_constants import shared
from support.deleted_rows import blocks_of, delete_positions, set_deletes
from support.service_api import fresh_name
from support.shared_lake import ROWS, SharedLake, rows
from support.sharing_client import Refused

pytestmark = pytest.mark.s3

_ABLE = "responseformat=delta;readerfeatures=deletionvectors,columnmapping,timestampntz"


def files_of(table: Table) -> list[str]:
    """The locations of a table's blocks, in the order of their ids."""
    blocks = blocks_of(table)
    return sorted(blocks, key=lambda location: first_id(blocks[location]))


def first_id(block: Block) -> int:
    """The smallest ``id`` of a block."""
    bound = block.col_stats[1].min
    assert bound is not None
    assert bound.int64 is not None
    return bound.int64


@pytest.fixture
def name(lake: SharedLake) -> str:
    """A table of three files with the ids from 0 to 149."""
    found = f"sales.{fresh_name('deleted')}"
    lake.table(found, [rows(number) for number in range(3)])
    return found


def adds(lake: SharedLake, name: str, **query: Any) -> list[dict[str, Any]]:
    """The files of an answer in Delta's form."""
    _, _, *lines = lake.recipient.lines(name, able=_ABLE, **query)
    return [line["file"]["deltaSingleAction"]["add"] for line in lines if "file" in line]


def test_the_client_leaves_deleted_rows_out(lake: SharedLake, name: str) -> None:
    """Also with hints, and a few more rows of a file later; earlier versions have them."""
    table = lake.operator.table(name)
    first, _, last = files_of(table)
    delete_positions(table, {first: [0, 7, 49], last: list(range(1, ROWS))}, lake.store)
    left = [each for each in range(101) if each not in (0, 7, 49)]
    assert lake.recipient.ids(name, use_delta_format=True) == left
    assert lake.recipient.ids(name) == left  # it asks which form the table has
    hint = '{"op": "lessThan", "children": [{"op": "column", "name": "id", "valueType": "long"}, '
    hint += '{"op": "literal", "value": "30", "valueType": "long"}]}'
    assert lake.recipient.ids(name, use_delta_format=True, jsonPredicateHints=hint) == left[:47]
    assert len(lake.recipient.ids(name, use_delta_format=True, limit=60)) == 60
    version = lake.recipient.version(name)
    delete_positions(table, {first: list(range(ROWS - 1))}, lake.store)
    assert lake.recipient.ids(name, use_delta_format=True) == list(range(49, 101))
    assert lake.recipient.ids(name, use_delta_format=True, version=version) == left
    assert lake.recipient.ids(name, use_delta_format=True, version=version - 1) == list(range(150))


def test_an_answer_has_the_vectors_and_the_features(lake: SharedLake, name: str) -> None:
    """Inline, with the number of rows; statistics are those of all rows, and say so."""
    table = lake.operator.table(name)
    first, second, _ = files_of(table)
    deleted = [1, 5, 48]
    delete_positions(table, {first: deleted}, lake.store)
    protocol, _, *_ = lake.recipient.lines(name, able=_ABLE)
    assert protocol["protocol"]["deltaProtocol"]["readerFeatures"] == ["deletionVectors"]
    found = adds(lake, name)
    assert [("deletionVector" in each) for each in found].count(True) == 1
    for add in found:
        stats = json.loads(add["stats"])
        assert (stats["numRecords"], stats["nullCount"]["id"]) == (ROWS, 0)
        assert stats.get("tightBounds", True) == ("deletionVector" not in add)
        assert ("id" in stats["minValues"]) == ("deletionVector" not in add)
    [vector] = [add["deletionVector"] for add in found if "deletionVector" in add]
    assert (vector["storageType"], vector["cardinality"]) == ("i", 3)
    data = decode_inline_vector(vector["pathOrInlineDv"], vector["sizeInBytes"])
    assert decode_vector(data, ROWS, location="x").tolist() == deleted
    # A limit counts rows that are left.
    delete_positions(table, {first: list(range(ROWS - 1)), second: list(range(ROWS - 1))}, lake.store)
    assert len(adds(lake, name, limitHint=52)) == 3


def test_recipients_that_know_no_vectors_are_refused(lake: SharedLake, name: str) -> None:
    """Also those of Delta's form without the feature; the message names what is needed. Compaction is not."""
    table = lake.operator.table(name)
    delete_positions(table, {files_of(table)[0]: [0]}, lake.store)
    for able in ("responseformat=parquet", "responseformat=delta", "responseformat=delta;readerfeatures=timestampntz"):
        answer = lake.recipient.query(name, able=able)
        assert (answer.status_code, answer.json()["errorCode"]) == (406, "NOT_EXPRESSIBLE")
        assert "files with deleted rows" in answer.json()["message"]
        assert "readerfeatures=deletionvectors" in answer.json()["message"]
    with pytest.raises(Refused, match="deletionvectors"):
        lake.recipient.load(name, use_delta_format=False)


def test_constants_and_vectors_are_shared_together(lake: SharedLake) -> None:
    """A row that is left has the value of its folder."""
    name, table = shared(lake, ("n", "s"), {"n": "1", "s": "x"}, {"n": "2", "s": "y"})
    delete_positions(table, {files_of(table)[1]: [0]}, lake.store)
    found = lake.recipient.load(name, use_delta_format=True).sort_values("id")
    assert found[["id", "n", "s"]].to_numpy().tolist() == [[0, 1, "x"], [1, 1, "x"], [3, 2, "y"]]


def test_a_damaged_vector_is_an_error(lake: SharedLake, name: str) -> None:
    """The recipient could not notice: the form has no checksum."""
    table = lake.operator.table(name)
    [entry] = delete_positions(table, {files_of(table)[0]: [0]}, lake.store)
    data = bytearray(lake.store.read(entry.location))
    data[entry.offset + entry.length - 6] ^= 1
    lake.store.replace(entry.location, bytes(data))
    answer = lake.recipient.query(name, able=_ABLE)
    assert answer.status_code >= 400
    assert "vector" in answer.json()["message"] or "sha" in answer.json()["message"].lower()


def test_several_vectors_of_a_file_are_refused(lake: SharedLake, name: str) -> None:
    """Delta has one per file."""
    table = lake.operator.table(name)
    location = files_of(table)[0]
    one, two = (delete_positions(table, {location: [row]}, lake.store)[0] for row in (3, 4))
    set_deletes(table, {location: (one, two)})
    answer = lake.recipient.query(name, able=_ABLE)
    assert (answer.status_code, answer.json()["errorCode"]) == (406, "NOT_EXPRESSIBLE")
    assert "several deletion vectors" in answer.json()["message"]
