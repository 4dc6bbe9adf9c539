"""The writer of a file, and known errors of that writer."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final, Literal

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from lamella.snapshot.errors import SchemaMismatch
from lamella.snapshot.schema.types import PER_SECOND

Field = Literal["binary bounds", "bounds", "null count", "null count above zero", "NaN count", "bloom filter"]
Version = tuple[int, int, int]


class Denial(msgspec.Struct, frozen=True, kw_only=True):
    """A statistic of a writer that is not trusted, before the version ``before`` (None: in no version).

    A writer that gives no version is denied what any of its versions is.
    """

    application: str
    field: Field
    reason: str
    before: Version | None = None


#: Errors of writers that no check of the numbers themselves can find. Names in lower case.
DENIED: Final = (
    Denial(
        application="parquet-mr",
        before=(1, 8, 0),
        field="binary bounds",
        reason="PARQUET-251: buffers were reused, so bounds may be those of another row group",
    ),
    Denial(
        application="parquet-mr",
        before=(1, 10, 0),
        field="null count",
        reason="old versions counted too few (apache/doris#67573, StarRocks/starrocks#78329)",
    ),
    Denial(
        application="parquet-cpp",
        field="null count",
        reason="nulls of dictionary columns were left out (apache/doris#67573)",
    ),
    Denial(
        application="parquet-cpp-arrow",
        before=(6, 0, 0),
        field="null count",
        reason="nulls of dictionary columns were left out (apache/doris#67573)",
    ),
    Denial(
        application="arrow2 - native rust implementation of arrow",
        field="null count",
        reason="counted in the dictionary instead of the column (jorgecarleitao/arrow2#1414)",
    ),
    Denial(
        application="polars",  # before about 2.0 it named no version
        before=(2, 1, 0),
        field="null count above zero",
        reason="the count was multiplied by the number of pages (pola-rs/polars#29321)",
    ),
    Denial(
        application="hyparquet",  # never names its version
        field="binary bounds",
        reason="a maximum was truncated without rounding up (hyparam/hyparquet-writer#31)",
    ),
    Denial(
        application="parquet-go",  # of Apache Arrow; no known version fixes both
        field="bloom filter",
        reason="adaptive filters were freed before they were written (apache/arrow-go#525), and those of dictionary "
        "arrays are empty (apache/arrow-go#1164)",
    ),
    Denial(
        application="github.com/segmentio/parquet-go",  # all of its versions are called 0.0.0
        field="bloom filter",
        reason="filters of dictionary columns lacked their values (segmentio/parquet-go#104)",
    ),
)

_CREATED_BY = re.compile(r"^(?P<application>.*?)\s+version\s+(?P<version>[^\s(]+)")
_VARIANT = re.compile(r"\s*\([^()]*\)$")  # "Polars (python)" is Polars
_VERSION = re.compile(r"^(\d{1,9})\.(\d{1,9})(?:\.(\d{1,9}))?(.*)$")
_CDH_FIXED = re.compile(r"^-cdh(\d{1,9})\.(\d{1,9})")


class Writer(msgspec.Struct, frozen=True, kw_only=True):
    """A parsed ``created_by``; ``known`` is false if it is missing or has no version."""

    known: bool
    denied: dict[Field, str]

    @property
    def denied_statistics(self) -> bool:
        """Returns whether something in the footer itself is not trusted."""
        return any(field != "bloom filter" for field in self.denied)


@lru_cache(maxsize=512)
def writer_of(created_by: str | None) -> Writer:
    """Parses ``<application> version <version> (build <hash>)`` and looks the writer up in :data:`DENIED`."""
    text = (created_by or "").strip()
    match = _CREATED_BY.match(text)
    version = _VERSION.match(match["version"]) if match else None
    application = _VARIANT.sub("", match["application"] if match else text).strip().lower()
    denied: dict[Field, str] = {}
    for denial in DENIED:
        if denial.application == application and (version is None or _covers(denial, version)):
            denied[denial.field] = denial.reason
    return Writer(known=version is not None, denied=denied)


def _covers(denial: Denial, version: re.Match[str]) -> bool:
    if denial.before is None:
        return True
    numbers = (int(version[1]), int(version[2]), int(version[3] or 0))
    suffix = version[4]
    if numbers == denial.before:
        return bool(suffix) and not suffix.startswith("+")  # a release candidate comes before the release
    if numbers > denial.before:
        return False
    cdh = _CDH_FIXED.match(suffix)  # Cloudera backported the fix of PARQUET-251 to its 1.5.0
    fixed = cdh is not None and numbers == (1, 5, 0) and (int(cdh[1]), int(cdh[2])) >= (5, 5)
    return not (fixed and denial.field == "binary bounds")


#: The limits from which days and instants mean the same in the old hybrid calendar and in the proleptic Gregorian one.
#: Days since the epoch of 1582-10-15; seconds since the epoch of 1900-01-01, when the old time zone tables end.
GREGORIAN_FROM_DAY: Final = -141_427
GREGORIAN_FROM_SECOND: Final = -2_208_988_800


def require_gregorian(values: pa.Array, location: str, column: str) -> None:
    """Raise SchemaMismatch for dates or times, also nested ones, that mean others in the old calendar.

    ``values``: of a file for which :func:`legacy_calendar` is true. Only Spark can read older ones: what a time of then
    means depends on the writer's time zone.
    """
    kind = values.type
    if pa.types.is_struct(kind):
        for part in values.flatten():
            require_gregorian(part, location, column)
    elif pa.types.is_map(kind):
        require_gregorian(values.keys, location, column)
        require_gregorian(values.items, location, column)
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        require_gregorian(values.flatten(), location, column)
    elif pa.types.is_date32(kind) or pa.types.is_timestamp(kind):
        limit = GREGORIAN_FROM_DAY if pa.types.is_date32(kind) else GREGORIAN_FROM_SECOND * PER_SECOND.get(kind.unit, 1)
        number = values.cast(pa.int32() if pa.types.is_date32(kind) else pa.int64())
        lowest = pc.min(number).as_py()
        if lowest is not None and lowest < limit:
            raise SchemaMismatch(
                f"{location} has dates of the old calendar in column {column!r}, which only Spark can read",
                column=column,
            )


def legacy_calendar(properties: dict[str, str]) -> bool:
    """Returns whether Spark wrote, or may have written, dates in the old hybrid calendar."""
    spark = "org.apache.spark."
    if f"{spark}legacyDateTime" in properties or f"{spark}legacyINT96" in properties:
        return True
    version = properties.get(f"{spark}version")
    if version is None:
        return f"{spark}sql.parquet.row.metadata" in properties  # Spark 2.4.5 and before record no version
    major = re.match(r"\d{1,9}", version)
    return major is None or int(major.group()) < 3
