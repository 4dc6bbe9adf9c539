"""Text: cut bounds, prefixes, padding, numbers in text."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from parquet.crafted import BYTE_ARRAY
from wrong_results.case import Case, CaseWriter, F, Query, ids, table
from wrong_results.parquet_bytes import Col, PageIndex, Stats, write

_LAST = "\U0010ffff"


def _text(values: list[Any], stats: Stats, *, created_by: str = "parquet-cpp-arrow version 26.0.1", **more: Any) -> Any:
    def make(writer: CaseWriter) -> list[str]:
        column = Col("s", BYTE_ARRAY, values, logical={1: {}}, converted=0, stats=[stats], **more)
        return [write(writer.folder / "a.parquet", ids(len(values)), column, created_by=created_by)]

    return make


def _starts(prefix: str) -> pc.Expression:
    return pc.starts_with(F("s"), prefix)


_KEYS = ["key-0000-a", "key-0000-zz", "key-0001-b"]
_LONG = ["a" * 70 + "b", "a" * 70 + "z"]
_PADDED = ["ab   ", "cd   "]
_NUMBERS = ["5", "05", "10", "9", None]

CASES = (
    Case(
        id="max-cut-not-rounded",
        title="a writer cuts the maximum and does not round it up",
        source="hyparam/hyparquet-writer#31",
        rows={"s": _KEYS},
        make=_text(_KEYS, Stats(b"key-0000", b"key-0001", nulls=0), created_by="hyparquet"),
        queries=(
            Query("s = 'key-0001-b'", lambda r: r["s"] == "key-0001-b", F("s") == "key-0001-b"),
            Query("s > 'key-0001'", lambda r: r["s"] > "key-0001", F("s") > "key-0001"),
            Query("s LIKE 'key-0001-%'", lambda r: r["s"].startswith("key-0001-"), _starts("key-0001-")),
        ),
    ),
    Case(
        id="bounds-cut-without-flag",
        title="bounds cut to 8 bytes, rounded up, not said to be inexact",
        source="duckdb#22538, parquet-format#305, doris#65494, iceberg#16328",
        rows={"s": _KEYS},
        make=_text(_KEYS, Stats(b"key-0000", b"key-0002", nulls=0)),
        queries=(
            Query("s = 'key-0000'", lambda _: False, F("s") == "key-0000"),
            Query("s < 'key-0000-b'", lambda r: r["s"] < "key-0000-b", F("s") < "key-0000-b"),
            Query("s >= 'key-0001-b'", lambda r: r["s"] >= "key-0001-b", F("s") >= "key-0001-b"),
            Query("NOT (s LIKE 'key-0000%')", lambda r: not r["s"].startswith("key-0000"), ~_starts("key-0000")),
        ),
    ),
    Case(
        id="bounds-longer-than-64",
        title="values alike in their first 70 bytes: cut bounds are equal, the values are not",
        source="apache/hudi#7032, doris#65494",
        rows={"s": _LONG},
        make=lambda writer: writer.by_spark(table(s=_LONG)),
        queries=(
            Query(f"s = '{_LONG[1]}'", lambda r: r["s"] == _LONG[1], F("s") == _LONG[1]),
            Query(f"s != '{_LONG[0]}'", lambda r: r["s"] != _LONG[0], F("s") != _LONG[0]),
            Query(f"s > '{_LONG[0]}'", lambda r: r["s"] > _LONG[0], F("s") > _LONG[0]),
        ),
    ),
    Case(
        id="prefix-before-the-last-character",
        title="LIKE with a prefix that ends in U+10FFFF: no character comes after it",
        source="Delta Lake#6540; databend's and Iceberg's truncation notes",
        rows={"s": ["a" + _LAST + "x", "ab", "b"]},
        make=lambda writer: [writer.arrow(table(s=["a" + _LAST + "x", "ab", "b"]), write_page_index=True)],
        queries=(
            Query(f"s LIKE 'a{_LAST}%'", lambda r: r["s"].startswith("a" + _LAST), _starts("a" + _LAST)),
            Query("s LIKE 'a%'", lambda r: r["s"].startswith("a"), _starts("a")),
            Query(
                f"startswith(s, '{_LAST}')",
                lambda r: r["s"].startswith(_LAST),
                _starts(_LAST),
                f"starts_with(s, '{_LAST}')",
            ),
        ),
    ),
    Case(
        id="bound-of-ff",
        title="bounds of bytes FF, which cannot be rounded up",
        source="Delta Lake#6540, parquet-format#305",
        rows={"s": [b"\xff\xff\xff", b"a"]},
        make=lambda writer: [
            write(
                writer.folder / "a.parquet",
                ids(2),
                Col("s", BYTE_ARRAY, [b"\xff\xff\xff", b"a"], stats=[Stats(b"a", b"\xff\xff\xff", nulls=0)]),
            )
        ],
        queries=(
            Query(
                "s = X'FFFFFF'",
                lambda r: r["s"] == b"\xff\xff\xff",
                F("s") == b"\xff\xff\xff",
                "s = '\\xFF\\xFF\\xFF'::BLOB",
            ),
            Query("s > X'FFFF'", lambda r: r["s"] > b"\xff\xff", F("s") > b"\xff\xff", "s > '\\xFF\\xFF'::BLOB"),
        ),
    ),
    Case(
        id="text-beyond-the-plane",
        title="UTF-8 order is not UTF-16 order: U+FFFD comes before U+10000",
        source="Delta Lake#6540; engines in Java and JavaScript",
        rows={"s": ["\ufffd", "\U00010000"]},
        make=lambda writer: [writer.arrow(table(s=["\ufffd", "\U00010000"]))],
        queries=(
            Query("s > '\ufffd'", lambda r: r["s"] > "\ufffd", F("s") > "\ufffd"),
            Query("s < '\U00010000'", lambda r: r["s"] < "\U00010000", F("s") < "\U00010000"),
        ),
    ),
    Case(
        id="char-padding",
        title="CHAR(5) is stored padded; a reader of the files sees text",
        source="Flint's source note",
        rows={"s": _PADDED},
        refused=("python",),
        make=lambda writer: writer.by_spark(table(s=["ab", "cd"]), columns=("id", "rpad(s, 5, ' ') AS s")),
        queries=(
            Query("s = 'ab   '", lambda r: r["s"] == "ab   ", F("s") == "ab   "),
            Query("s = 'ab'", lambda r: r["s"] == "ab", F("s") == "ab"),
            Query("rtrim(s) = 'ab'", lambda r: r["s"].rstrip() == "ab", pc.utf8_rtrim(F("s"), " ") == "ab"),
            Query("s LIKE 'ab%'", lambda r: r["s"].startswith("ab"), _starts("ab")),
        ),
    ),
    Case(
        id="text-with-number",
        title="text compared with a number is compared as a number",
        source="Delta Lake#7523",
        rows={"s": _NUMBERS},
        refused=("python",),
        make=lambda writer: [writer.arrow(table(s=pa.array(_NUMBERS)))],
        queries=(
            Query("s = 5", lambda r: r["s"] is not None and int(r["s"]) == 5),
            Query("s < 10", lambda r: r["s"] is not None and int(r["s"]) < 10),
            Query("s = '5'", lambda r: r["s"] == "5", F("s") == "5"),
        ),
    ),
    Case(
        id="empty-text-page",
        title="the empty text is a bound like any other",
        source="parquet page index: an empty bound is not a null page",
        rows={"s": ["", "", "b", "c"]},
        make=_text(
            ["", "", "b", "c"],
            Stats(b"", b"c", nulls=0),
            page_rows=2,
            index=[PageIndex([False, False], [b"", b"b"], [b"", b"c"], [0, 0], order=1)],
        ),
        queries=(
            Query("s = ''", lambda r: r["s"] == "", F("s") == ""),
            Query("s < 'b'", lambda r: r["s"] < "b", F("s") < "b"),
        ),
    ),
)
