"""Time: old calendars, clocks that go back, units, zones."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping

import pyarrow as pa

from wrong_results.case import Case, CaseWriter, F, Query, table

_UTC = dt.UTC
#: Berlin's clocks show 02:30 twice: at 00:30 and 01:30 UTC.
FALL_BACK = [dt.datetime(2024, 10, 27, hour, 30, tzinfo=_UTC) for hour in (0, 1, 2)] + [
    dt.datetime(2024, 10, 26, 21, 59, tzinfo=_UTC),
    dt.datetime(2024, 10, 26, 22, 1, tzinfo=_UTC),
    dt.datetime(2024, 10, 27, 22, 59, tzinfo=_UTC),
]
_BERLIN_OFFSET_H = [2, 1, 1, 2, 2, 1]
#: The same moments on a wall clock in Berlin.
LOCAL = [
    at.replace(tzinfo=None) + dt.timedelta(hours=hours) for at, hours in zip(FALL_BACK, _BERLIN_OFFSET_H, strict=True)
]
_MIDNIGHT = dt.datetime(2024, 10, 27)  # noqa: DTZ001  # a wall clock
_OLD_DAYS = [dt.date(1001, 1, 1), dt.date(1582, 10, 4), dt.date(2020, 1, 1)]
_LEGACY: Mapping[str, str] = {"spark.sql.parquet.datetimeRebaseModeInWrite": "LEGACY"}


def _fall_back(writer: CaseWriter) -> list[str]:
    return [
        writer.arrow(pa.table({"id": [at], "t": pa.array([moment], pa.timestamp("us", "UTC"))}), f"{at}.parquet")
        for at, moment in enumerate(FALL_BACK)
    ]


def _legacy(writer: CaseWriter) -> list[str]:
    for name, value in _LEGACY.items():
        writer.spark.conf.set(name, value)
    try:
        return writer.by_spark(table(d=pa.array(_OLD_DAYS, pa.date32())))
    finally:
        for name in _LEGACY:
            writer.spark.conf.unset(name)


def _int96(writer: CaseWriter) -> list[str]:
    moments = table(t=pa.array(FALL_BACK, pa.timestamp("us", "UTC")))
    writer.spark.conf.set("spark.sql.parquet.outputTimestampType", "INT96")
    try:
        return writer.by_spark(moments)
    finally:
        writer.spark.conf.unset("spark.sql.parquet.outputTimestampType")


CASES = (
    Case(
        id="legacy-calendar",
        title="dates that Spark wrote in the old calendar (LEGACY)",
        source="SPARK-36034, SPARK-31159",
        rows={"d": _OLD_DAYS},
        make=_legacy,
        queries=(
            Query("d = DATE '1001-01-01'", lambda r: r["d"] == _OLD_DAYS[0], F("d") == _OLD_DAYS[0]),
            Query("d <= DATE '1001-01-03'", lambda r: r["d"] <= dt.date(1001, 1, 3), F("d") <= dt.date(1001, 1, 3)),
            Query("d > DATE '2000-01-01'", lambda r: r["d"].year >= 2000, F("d") > dt.date(2000, 1, 1)),
        ),
        refused=("python",),
    ),
    Case(
        id="clocks-go-back",
        title="dates and hours of instants where clocks go back (session in Europe/Berlin)",
        source="Doris#68118",
        rows={"t": FALL_BACK, "local": LOCAL},
        make=_fall_back,
        queries=(
            Query(
                "to_date(t) = DATE '2024-10-27'",
                lambda r: r["local"].date() == dt.date(2024, 10, 27),
                None,
                "t::DATE = DATE '2024-10-27'",
            ),
            Query("hour(t) = 2", lambda r: r["local"].hour == 2),
            Query(
                "date_trunc('hour', t) = TIMESTAMP '2024-10-27 02:00:00+01:00'",
                lambda r: r["t"] == FALL_BACK[1],
                None,
                "date_trunc('hour', t) = TIMESTAMPTZ '2024-10-27 02:00:00+01:00'",
            ),
            Query(
                "t = TIMESTAMP '2024-10-27 02:30:00+01:00'",
                lambda r: r["t"] == FALL_BACK[1],
                F("t") == pa.scalar(FALL_BACK[1]),
                "t = TIMESTAMPTZ '2024-10-27 02:30:00+01:00'",
            ),
            Query(
                "t >= TIMESTAMP '2024-10-27 02:30:00'",
                lambda r: r["t"] >= FALL_BACK[0],  # the first of the two
                F("t") >= pa.scalar(FALL_BACK[0]),
                "t >= TIMESTAMPTZ '2024-10-27 02:30:00'",
            ),
            Query(
                "t < DATE '2024-10-27'",
                lambda r: r["local"] < _MIDNIGHT,
                None,
                "t < TIMESTAMPTZ '2024-10-27 00:00:00'",
            ),  # wall clock
        ),
    ),
    Case(
        id="int96-of-spark",
        title="Spark's default timestamps: INT96 without bounds",
        source="PARQUET-1065; Spark 4.3 default",
        rows={"t": FALL_BACK},
        make=_int96,
        queries=(
            Query(
                "t = TIMESTAMP '2024-10-27 02:30:00+01:00'",
                lambda r: r["t"] == FALL_BACK[1],
                None,
                "t AT TIME ZONE 'UTC' = TIMESTAMPTZ '2024-10-27 02:30:00+01:00'",
            ),
            Query("t IS NOT NULL", lambda _: True, F("t").is_valid()),
        ),
    ),
    Case(
        id="wall-clock-not-instant",
        title="timestamps without a zone are no instants",
        source="elastic#153523, Doris#68118",
        rows={"t": LOCAL},
        make=lambda writer: [writer.arrow(table(t=pa.array(LOCAL, pa.timestamp("us"))))],
        queries=(
            Query(
                "t = TIMESTAMP_NTZ '2024-10-27 02:30:00'",
                lambda r: r["t"] == LOCAL[0],
                F("t") == pa.scalar(LOCAL[0]),
                "t = TIMESTAMP '2024-10-27 02:30:00'",
            ),
            Query(
                "t < TIMESTAMP_NTZ '2024-10-27 00:00:00'",
                lambda r: r["t"] < _MIDNIGHT,
                F("t") < pa.scalar(_MIDNIGHT),
                "t < TIMESTAMP '2024-10-27 00:00:00'",
            ),  # wall clock
        ),
    ),
    Case(
        id="milliseconds",
        title="a file in milliseconds, a constant in microseconds",
        source="elastic#153523, Paimon#8801; reproduced on Spark 4.3 (it cuts the constant to milliseconds)",
        settings={"spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS"},
        rows={
            "t": [dt.datetime(1969, 12, 31, 23, 59, 59, 999_000, _UTC), dt.datetime(2020, 1, 1, 0, 0, 0, 1000, _UTC)]
        },
        make=lambda writer: [writer.arrow(table(t=pa.array([-1, 1_577_836_800_001], pa.timestamp("ms", "UTC"))))],
        queries=(
            Query(
                "t > TIMESTAMP '2020-01-01 00:00:00.000999Z'",
                lambda r: r["t"].year == 2020,
                F("t") > pa.scalar(dt.datetime(2020, 1, 1, 0, 0, 0, 999, _UTC)),
                "t > TIMESTAMPTZ '2020-01-01 00:00:00.000999+00'",
            ),
            Query(
                "t < TIMESTAMP '1969-12-31 23:59:59.9995Z'",
                lambda r: r["t"].year == 1969,
                F("t") < pa.scalar(dt.datetime(1969, 12, 31, 23, 59, 59, 999_500, _UTC)),
                "t < TIMESTAMPTZ '1969-12-31 23:59:59.9995+00'",
            ),
            Query(
                "t = TIMESTAMP '2020-01-01 00:00:00.0015Z'",
                lambda _: False,
                F("t") == pa.scalar(dt.datetime(2020, 1, 1, 0, 0, 0, 1500, _UTC)),
                "t = TIMESTAMPTZ '2020-01-01 00:00:00.0015+00'",
            ),
        ),
    ),
)
