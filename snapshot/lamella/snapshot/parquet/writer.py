"""Who wrote a file, and what is known to be wrong with what that writer wrote."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final, Literal

import msgspec

Field = Literal["binary bounds", "bounds", "null count", "NaN count"]
Version = tuple[int, int, int]


class Denial(msgspec.Struct, frozen=True, kw_only=True):
    """A statistic of a writer that is not believed, from version ``since`` up to but without ``before``."""

    application: str
    field: Field
    reason: str
    since: Version = (0, 0, 0)
    before: Version | None = None


#: Writers' errors that no check of the numbers themselves can find (rules E3, E6).
DENIED: Final = (
    Denial(
        application="parquet-mr",
        before=(1, 8, 0),
        field="binary bounds",
        reason="PARQUET-251: buffers were used again, so bounds of another row group may stand there",
    ),
)

_CREATED_BY = re.compile(r"^(?P<application>.*?)\s+version\s+(?P<version>[^\s(]+)")
_VERSION = re.compile(r"^(\d{1,9})\.(\d{1,9})(?:\.(\d{1,9}))?(.*)$")
_CDH_FIXED = re.compile(r"^-cdh(\d{1,9})\.(\d{1,9})")


class Writer(msgspec.Struct, frozen=True, kw_only=True):
    """A parsed ``created_by``; ``known`` is false when it is missing or says no version."""

    known: bool
    denied: dict[Field, str]


@lru_cache(maxsize=512)
def writer_of(created_by: str | None) -> Writer:
    """Parse ``<application> version <version> (build <hash>)`` and look the writer up in :data:`DENIED`."""
    match = _CREATED_BY.match(created_by or "")
    version = _VERSION.match(match["version"]) if match else None
    if match is None or version is None:
        return Writer(known=False, denied={})
    application = match["application"].strip().lower()
    numbers = (int(version[1]), int(version[2]), int(version[3] or 0))
    suffix = version[4]
    denied: dict[Field, str] = {}
    for denial in DENIED:
        if denial.application == application and _covers(denial, numbers, suffix):
            denied[denial.field] = denial.reason
    return Writer(known=True, denied=denied)


def _covers(denial: Denial, numbers: Version, suffix: str) -> bool:
    if numbers < denial.since or denial.before is None:
        return numbers >= denial.since
    if numbers == denial.before:
        return bool(suffix) and not suffix.startswith("+")  # a release candidate comes before the release
    if numbers > denial.before:
        return False
    cdh = _CDH_FIXED.match(suffix)  # Cloudera took the fix of PARQUET-251 into its 1.5.0
    return not (cdh and numbers == (1, 5, 0) and (int(cdh[1]), int(cdh[2])) >= (5, 5))


#: Where days and instants mean the same in the old hybrid calendar and in the proleptic Gregorian one (rule B12).
#: Days since the epoch of 1582-10-15; seconds since the epoch of 1900-01-01, when the old time zone tables end.
GREGORIAN_FROM_DAY: Final = -141_427
GREGORIAN_FROM_SECOND: Final = -2_208_988_800


def legacy_calendar(properties: dict[str, str]) -> bool:
    """True when Spark wrote, or may have written, dates in the old hybrid calendar."""
    spark = "org.apache.spark."
    if f"{spark}legacyDateTime" in properties or f"{spark}legacyINT96" in properties:
        return True
    version = properties.get(f"{spark}version")
    if version is None:
        return f"{spark}sql.parquet.row.metadata" in properties  # Spark 2.4.5 and before name no version
    major = re.match(r"\d{1,9}", version)
    return major is None or int(major.group()) < 3
