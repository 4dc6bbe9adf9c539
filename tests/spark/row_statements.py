"""Random statements that change rows of a table, beside what the same statements mean.

What a statement means is told by Spark itself: ``UPDATE`` is a ``SELECT`` with ``CASE`` over the rows from before, and
``MERGE`` a full outer join, inserted into a plain Parquet table of the same columns, which casts by the same rules.
"""

# ruff: noqa: S608 - the SQL of these tests has no input from outside

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import SparkSession

from spark.lakes import CATALOG, Lakes, fresh

#: The columns of the tables: type, and what is added to it.
COLUMNS = {
    "k": ("INT", ""),
    "n": ("BIGINT", ""),
    "x": ("DOUBLE", ""),
    "d": ("DECIMAL(10,2)", ""),
    "day": ("DATE", ""),
    "ts": ("TIMESTAMP", ""),
    "s": ("STRING", ""),
    "st": ("STRUCT<a: INT, b: STRING>", ""),
    "r": ("INT", "NOT NULL"),
    "f": ("SMALLINT", "DEFAULT 7"),
}
_VALUES = {
    "k": ["NULL", *map(str, range(12))],
    "n": ["NULL", "0L", "5L", "-3L", "9223372036854775807L", "2147483648L", "40L"],
    "x": ["NULL", "double('NaN')", "-0.0D", "0.0D", "1.5D", "double('Infinity')", "-2.5D"],
    "d": ["NULL", "0.00", "1.10", "-5.55", "99999999.99", "3.30"],
    "day": ["NULL", "DATE'1600-02-29'", "DATE'2024-03-31'", "DATE'2024-10-27'", "DATE'9999-12-31'"],
    "ts": [
        *("NULL", "TIMESTAMP'2024-10-27 02:30:00+01:00'", "TIMESTAMP'2024-10-27 02:30:00+02:00'"),
        *("TIMESTAMP'1700-01-01 00:00:00Z'", "TIMESTAMP'2024-03-31 01:00:00.123456Z'"),
    ],
    "s": ["NULL", "''", "'a'", "'ab'", "'Ba'", "'ß'", "'x\\\\_y'"],
    "st": ["NULL", "named_struct('a', 1, 'b', 'z')", "named_struct('a', NULL, 'b', '')"],
    "r": ["1", "2", "3", "4"],
    "f": ["NULL", "7S", "-1S", "32767S"],
}
#: Conditions on one row, ``{t}`` stands for its alias.
_CONDITIONS = [
    *("{t}.k = 3", "{t}.k < 4", "{t}.k % 3 = 1", "{t}.k IS NULL", "{t}.k IS NOT NULL AND {t}.r > 1", "{t}.r = 2"),
    *("{t}.n > 4", "{t}.x = 0", "isnan({t}.x)", "{t}.x > 1", "{t}.x <=> NULL", "NOT ({t}.d > 1)", "{t}.s LIKE 'a%'"),
    *("{t}.s RLIKE '^[aB]'", "{t}.day >= DATE'2024-01-01'", "{t}.ts < TIMESTAMP'2024-10-27 01:00:00Z'"),
    *("{t}.st.a = 1", "{t}.st IS NULL", "upper({t}.s) = 'AB'", "{t}.f = 7 OR {t}.k IN (1, 5, 9)", "{t}.k = {t}.r"),
    *(
        "CASE WHEN {t}.k > 6 THEN {t}.r = 1 ELSE {t}.x < 0 END",
        "year({t}.day) = 2024",
        "1 = 0",
        "{t}.k BETWEEN 2 AND 9",
    ),
]
#: Conditions with other rows. ``{target}``: the table as it was.
_SUBQUERIES = [
    "{t}.k IN (SELECT k FROM {source})",
    "{t}.k NOT IN (SELECT k FROM {source} WHERE k IS NOT NULL)",
    "EXISTS (SELECT 1 FROM {source} o WHERE o.k = {t}.k AND o.n > 0)",
    "{t}.n = (SELECT max(n) FROM {target})",
    "{t}.k IN (SELECT k + 1 FROM {target} WHERE r = 2)",
    "{t}.r > (SELECT avg(r) FROM {target}) OR {t}.k IN (SELECT r FROM {source})",
]
#: Values by column; ``{o}`` stands for the alias of the source, or of the row itself.
_ASSIGNED = {
    "k": ["{o}.k", "{t}.k + 1", "NULL", "{o}.r"],
    "n": ["{o}.n", "{t}.n + 1", "{t}.k", "(SELECT max(r) FROM {target})"],
    "x": ["{o}.x", "{t}.x * 2", "-{t}.x", "double('NaN')", "{t}.n"],
    "d": ["{o}.d", "{t}.d + 0.01", "{t}.k", "NULL"],
    "day": ["{o}.day", "date_add({t}.day, -1)", "DATE'2024-02-29'"],
    "ts": ["{o}.ts", "{t}.ts + INTERVAL 1 DAY", "{t}.day"],
    "s": ["{o}.s", "concat({t}.s, '+')", "upper({o}.s)", "CAST({t}.k AS STRING)"],
    "st": ["{o}.st", "named_struct('a', {t}.k, 'b', {o}.s)", "NULL"],
    "r": ["{o}.r", "{t}.r + 1", "{o}.k", "{t}.n"],
    "f": ["{o}.f", "DEFAULT", "{t}.f + 1", "{t}.k"],
}


#: A value does not fit. Which of several values is met first is chance, and casts for tables have a name of their own.
_OVERFLOWS = ("CAST_OVERFLOW", "CAST_OVERFLOW_IN_TABLE_INSERT", "NUMERIC_VALUE_OUT_OF_RANGE", "ARITHMETIC_OVERFLOW")


@dataclass
class History:
    """One table of the catalog, and a plain one with the rows that it should have."""

    spark: SparkSession
    lakes: Lakes
    rng: random.Random
    name: str = ""
    source: str = ""
    _plain: str = ""
    _rows: Any = None
    _statements: list[str] = field(default_factory=list)

    @property
    def sql(self) -> str:
        """The table in SQL."""
        return f"{CATALOG}.{self.name}"

    def begin(self) -> None:
        """Create both, with rows in several blocks of which some rows are deleted."""
        rng = self.rng
        self.name = f"{fresh('changed')}.t"
        self.lakes.lake.create_namespace(self.name.split(".")[0])
        cluster = rng.choice(["", "CLUSTER BY (k)", "CLUSTER BY (k, s)"])
        columns = ", ".join(f"{name} {kind} {more}" for name, (kind, more) in COLUMNS.items())
        is_renamed = rng.random() < 0.4
        if is_renamed:  # the first files have other names than the later ones
            columns = columns.replace("n BIGINT", "m BIGINT", 1)
        self.spark.sql(f"CREATE TABLE {self.sql} ({columns}) {cluster} TBLPROPERTIES ('target_block_rows' = '16')")
        self.spark.sql(f"INSERT INTO {self.sql} {self._random_rows(rng.randrange(20, 60))}")
        if is_renamed:
            self.spark.sql(f"ALTER TABLE {self.sql} RENAME COLUMN m TO n")
        self.spark.sql(f"INSERT INTO {self.sql} {self._random_rows(rng.randrange(1, 20))}")
        self._remember(self.spark.table(self.sql).toArrow())
        self.source = self._new_source()

    def step(self) -> None:
        """Run one random statement on both, and compare."""
        statement, meaning, may_violate = self._statement()
        self._statements.append(statement)
        expected = self._expected(meaning, may_violate)
        found = self._outcome(statement)
        if expected == set():
            assert found is None, self._failed(found)
        else:
            assert found in expected, self._failed((found, expected))
        rows, truth = shown(self.spark.table(self.sql).toArrow()), shown(self._rows)
        assert rows == truth, self._failed([sorted(set(rows) ^ set(truth))[:6], len(rows), len(truth)])
        if self.rng.random() < 0.3:
            self.source = self._new_source()

    def check_table(self) -> None:
        """What the manifests say of the table is true."""
        handle = self.lakes.lake.table(self.name)
        answer = handle.verify()
        assert answer.findings == (), self._failed(answer.findings)
        assert self.spark.table(self.sql).count() == self._rows.num_rows

    def _failed(self, what: Any) -> str:
        return "\n".join([*self._statements, repr(what)])

    def _outcome(self, statement: str) -> str | None:
        """The condition of the error; None: there is none."""
        try:
            self.spark.sql(statement)
        except PySparkException as error:
            return condition_of(error)
        return None

    def _expected(self, meaning: str, may_violate: str | None) -> set[str]:
        """Remember the rows that a statement leaves, unless it fails; returns how it may fail."""
        conditions = set()
        if may_violate is not None and self.spark.sql(may_violate).head() is not None:
            conditions.add("MERGE_CARDINALITY_VIOLATION")
        cast = ", ".join(f"CAST(__c{at} AS {kind}) AS {name}" for at, (name, (kind, _)) in enumerate(COLUMNS.items()))
        try:
            rows = self.spark.sql(f"SELECT {cast} FROM ({meaning})").toArrow()
        except AnalysisException:
            raise  # a mistake of this module
        except PySparkException as error:
            return {*conditions, condition_of(error)}
        if rows.column("r").null_count:
            conditions.add("NOT_NULL_ASSERT_VIOLATION")
        if not conditions:
            self._remember(rows)
        return conditions

    def _remember(self, rows: pa.Table) -> None:
        self._plain = fresh("plain")
        self._rows = rows
        self.spark.createDataFrame(rows, self.spark.table(self.sql).schema).createOrReplaceTempView(self._plain)

    def _new_source(self) -> str:
        """A view, a table of the catalog, or a plain table, with the columns of the table."""
        name, rows = fresh("source"), self._random_rows(self.rng.randrange(0, 12), unique=self.rng.random() < 0.7)
        if self.rng.random() < 0.5:
            self.spark.sql(f"CREATE TEMPORARY VIEW {name} AS {rows}")
            return name
        name = f"{CATALOG}.{self.name.split('.')[0]}.{name}"
        self.spark.sql(f"CREATE TABLE {name} AS {rows}")
        return name

    def _random_rows(self, count: int, *, unique: bool = False) -> str:
        """A query with random rows; ``unique``: with different keys."""
        keys = self.rng.sample(_VALUES["k"], min(count, len(_VALUES["k"]))) if unique else [None] * count
        lines = []
        for key in keys:
            values = [self.rng.choice(each) for each in _VALUES.values()]
            lines.append(f"({', '.join(values if key is None else [key, *values[1:]])})")
        cast = ", ".join(f"CAST({name} AS {kind}) AS {name}" for name, (kind, _) in COLUMNS.items())
        if not lines:
            nothing = ", ".join(f"CAST(NULL AS {kind}) AS {name}" for name, (kind, _) in COLUMNS.items())
            return f"SELECT {nothing} WHERE false"
        return f"SELECT {cast} FROM VALUES {', '.join(lines)} AS v({', '.join(COLUMNS)})"

    def _statement(self) -> tuple[str, str, str | None]:
        """A statement, the query of the rows that it leaves, and a query that has rows if it may fail because several
        rows match."""
        kind = self.rng.choice(["update", "delete", "merge", "merge", "merge"])
        if kind == "merge":
            return self._merge()
        condition = self.rng.choice(_CONDITIONS if self.rng.random() < 0.6 else _SUBQUERIES)
        here, there = self._text(condition, "t", "t", self.sql), self._text(condition, "t", "t", self._plain)
        if kind == "delete":
            selected = ", ".join(f"t.{name} AS __c{at}" for at, name in enumerate(COLUMNS))
            meaning = f"SELECT {selected} FROM {self._plain} t WHERE NOT (({there}) <=> true)"
            return f"DELETE FROM {self.sql} t WHERE {here}", meaning, None
        assigned = self._assignments("t")
        where = "" if self.rng.random() < 0.1 else here
        sets = ", ".join(f"{name} = {self._text(value, 't', 't', self.sql)}" for name, value in assigned.items())
        applies = there if where else "true"
        shown = []
        for at, name in enumerate(COLUMNS):
            text = f"t.{name}"
            if name in assigned:
                text = f"CASE WHEN {applies} THEN {self._value(name, assigned[name], 't', 't')} ELSE t.{name} END"
            shown.append(f"{text} AS __c{at}")
        return (
            f"UPDATE {self.sql} t SET {sets}" + (f" WHERE {where}" if where else ""),
            f"SELECT {', '.join(shown)} FROM {self._plain} t",
            None,
        )

    def _assignments(self, other: str) -> dict[str, str]:
        names = self.rng.sample([*COLUMNS], self.rng.randrange(1, 4))
        return {
            name: self.rng.choice([each for each in _ASSIGNED[name] if other != "s" or "SELECT" not in each])
            for name in names
        }

    def _value(self, name: str, value: str, row: str, other: str) -> str:
        text = "CAST(7 AS SMALLINT)" if value == "DEFAULT" else self._text(value, row, other, self._plain)
        return f"CAST(NULL AS {COLUMNS[name][0]})" if text == "NULL" else text

    def _text(self, text: str, row: str, other: str, target: str) -> str:
        return text.format(t=row, o=other, target=target, source=self.source)

    def _merge(self) -> tuple[str, str, str | None]:
        rng = self.rng
        on = rng.choice(
            ["t.k = s.k", "t.k = s.k", "t.k = s.k AND t.r = s.r", "t.k <=> s.k", "t.k = s.k AND t.k < 6", "t.r = s.k"]
        )
        source = rng.choice([self.source, self.source, f"(SELECT * FROM {self.source} WHERE r <> 2)"])
        if rng.random() < 0.15:
            source = "(SELECT * FROM {target} WHERE r = 1)"
        clauses: list[tuple[str, str | None, dict[str, str] | str | None]] = []
        for when, maximum in (("matched", 3), ("not matched", 2), ("by source", 2)):
            count = rng.choice([0, 1, 1, maximum]) if when != "by source" else rng.choice([0, 0, 0, 1, maximum])
            for at in range(count):
                alias = "s" if when == "not matched" else "t"
                condition = None
                if at < count - 1 or rng.random() < 0.4:
                    condition = rng.choice(_CONDITIONS).format(t=rng.choice(["t", "s"]) if when == "matched" else alias)
                what: dict[str, str] | str | None
                if when == "not matched":
                    what = "*" if rng.random() < 0.4 else self._inserted()
                elif rng.random() < 0.35:
                    what = None
                elif when == "matched":
                    what = "*" if rng.random() < 0.3 else self._assignments("s")
                else:
                    what = {name: value for name, value in self._assignments("t").items() if "SELECT" not in value} or {
                        "s": "'lost'"
                    }
                clauses.append((when, condition, what))
        if not clauses:
            clauses = [("matched", None, {"s": "{o}.s"})]
        return self._merge_of(on, source, clauses)

    def _inserted(self) -> dict[str, str]:
        names = ["r", *self.rng.sample([name for name in COLUMNS if name != "r"], self.rng.randrange(0, 6))]
        return {name: f"s.{name}" if name != "f" or self.rng.random() < 0.5 else "DEFAULT" for name in names}

    def _merge_of(
        self, on: str, source: str, clauses: list[tuple[str, str | None, dict[str, str] | str | None]]
    ) -> tuple[str, str, str | None]:
        heads = {"matched": "MATCHED", "not matched": "NOT MATCHED", "by source": "NOT MATCHED BY SOURCE"}
        lines = [f"MERGE INTO {self.sql} t USING {source.format(target=self.sql)} s ON {on}"]
        for when, condition, what in clauses:
            other = "t" if when == "by source" else "s"
            head = f"WHEN {heads[when]}" + (f" AND {condition}" if condition else "") + " THEN "
            if when == "not matched":
                if what == "*":
                    lines.append(head + "INSERT *")
                else:
                    assert isinstance(what, dict)
                    lines.append(f"{head}INSERT ({', '.join(what)}) VALUES ({', '.join(what.values())})")
            elif what is None:
                lines.append(head + "DELETE")
            elif what == "*":
                lines.append(head + "UPDATE SET *")
            else:
                assert isinstance(what, dict)
                sets = [f"{name} = {self._text(value, 't', other, self.sql)}" for name, value in what.items()]
                lines.append(f"{head}UPDATE SET {', '.join(sets)}")
        return "\n".join(lines), *self._meaning(on, source.format(target=self._plain), clauses)

    def _meaning(
        self, on: str, source: str, clauses: list[tuple[str, str | None, dict[str, str] | str | None]]
    ) -> tuple[str, str | None]:
        states = {
            "matched": "t.__t IS NOT NULL AND s.__s IS NOT NULL",
            "not matched": "t.__t IS NULL",
            "by source": "s.__s IS NULL",
        }
        applies = [
            f"WHEN {states[when]} AND (({condition or 'true'}) <=> true) THEN {number}"
            for number, (when, condition, _) in enumerate(clauses)
        ]
        joined = (
            f"SELECT struct(t.*) AS t, struct(s.*) AS s FROM (SELECT *, monotonically_increasing_id() AS __t"
            f" FROM {self._plain}) t FULL OUTER JOIN (SELECT *, 1 AS __s FROM {source}) s ON {on}"
        )
        deleted = [number for number, (_, _, what) in enumerate(clauses) if what is None]
        shown: list[str] = []
        for name in COLUMNS:
            parts = []
            for number, (when, _, what) in enumerate(clauses):
                if what is None:
                    continue
                value = self._merged(name, when, what)
                if value is not None:
                    parts.append(f"WHEN {number} THEN {value}")
            cases = f"CASE __action {' '.join(parts)} ELSE t.{name} END" if parts else f"t.{name}"
            shown.append(f"{cases} AS __c{len(shown)}")
        names = ", ".join(f"__c{at}" for at in range(len(COLUMNS)))
        with_action = f"SELECT t, s, CASE {' '.join(applies)} END AS __action FROM ({joined})"
        changed = f"SELECT __action, t.__t IS NOT NULL AS __present, {', '.join(shown)} FROM ({with_action})"
        is_read = any(when != "not matched" for when, _, _ in clauses)
        inserted = f"__action NOT IN ({', '.join(map(str, [-1, *deleted]))})"
        left = f"__action IS NULL AND __present OR {inserted}" if is_read else inserted
        meaning = f"SELECT {names} FROM ({changed}) WHERE {left}"
        if not is_read:  # a row that several rows match stays as it is
            meaning += f" UNION ALL SELECT * FROM {self._plain}"
        matched = [(condition, what) for when, condition, what in clauses if when == "matched"]
        # Spark writes a row that several rows match several times if no clause is about it, unless that is refused.
        checks = is_read and matched != [(None, None)]
        several = f"SELECT t.__t FROM ({joined}) WHERE {states['matched']} GROUP BY t.__t HAVING count(*) > 1 LIMIT 1"
        return meaning, several if checks else None

    def _merged(self, name: str, when: str, what: dict[str, str] | str) -> str | None:
        """What a clause gives to a column; None: what the row had."""
        kind = COLUMNS[name][0]
        if what == "*":
            return f"s.{name}"
        assert isinstance(what, dict)
        if name in what:
            return self._value(name, what[name], "t", "t" if when == "by source" else "s")
        if when != "not matched":
            return None
        return "CAST(7 AS SMALLINT)" if name == "f" else f"CAST(NULL AS {kind})"


def shown(rows: pa.Table) -> list[str]:
    """The rows in an order of their own, exactly."""
    times = [rows.schema.get_field_index("ts")]
    for at in times:
        rows = rows.set_column(at, "ts", rows.column(at).cast(pa.int64()))
    return sorted(repr(tuple(row.values())) for row in rows.to_pylist())


def condition_of(error: PySparkException) -> str:
    """The condition of Spark's error, or its class; the same for all values that do not fit."""
    found = str(error.getCondition() or type(error).__name__)
    return "overflow" if found.split(".")[0] in _OVERFLOWS else found
