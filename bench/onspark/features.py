"""Spark statements, which tables of Lamella, Delta and Iceberg are asked: one list, run in a session of each.

A feature works if its statements run and the query after them gives the expected rows. The text of a feature may differ
between systems, where each has a way of its own. ``{t}`` is a new table, ``{u}`` the name of another, ``{db}`` their
schema, ``{using}`` what makes a table one of the system, ``{folder}`` a folder for files. Texts that begin with
``spark.`` are Python.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

#: The text for each system, or one for all.
Text = str | Mapping[str, str]
Rows = Sequence[Sequence[Any]]

SYSTEMS: Final = ("lamella", "delta", "iceberg")


class Feature(NamedTuple):
    """``before`` is run first, in a new schema; then ``text``. ``query`` must give ``rows``, in any order.

    ``fails``: the text must be refused, and the table be as it was, which ``query`` shows.
    """

    name: str
    text: Text
    query: str = ""
    rows: Rows = ()
    before: tuple[str, ...] = ()
    fails: bool = False

    def text_of(self, system: str) -> str | None:
        """The text for a system, None where it has no way to say this."""
        return self.text if isinstance(self.text, str) else self.text.get(system)


_TABLE: Final = "CREATE TABLE {t} (id INT, v STRING) {using}"
_ROWS: Final = "INSERT INTO {t} VALUES (1, 'a'), (2, 'b'), (3, 'c')"
_MADE: Final = (_TABLE, _ROWS)
_ALL: Final = "SELECT * FROM {t}"
FEATURES: Final[Mapping[str, Sequence[Feature]]] = {
    "Reading": (
        Feature(
            "an earlier version",
            {
                "lamella": "SELECT * FROM {t} VERSION AS OF 2",
                "delta": "SELECT * FROM {t} VERSION AS OF 1",
                "iceberg": 'spark.sql(f"SELECT * FROM {t} VERSION AS OF '
                "{spark.sql(f'SELECT snapshot_id FROM {t}.snapshots ORDER BY committed_at').first()[0]}\").collect()",
            },
            "SELECT count(*) FROM {t}",
            [[2]],
            (*_MADE, "DELETE FROM {t} WHERE id = 2"),
        ),
        Feature(
            "the history of commits",
            {
                "lamella": "SELECT * FROM {db}.`t$snapshots`",
                "delta": "DESCRIBE HISTORY {t}",
                "iceberg": "SELECT * FROM {t}.history",
            },
            before=_MADE,
        ),
        Feature(
            "the files and their statistics as a table",
            {
                "lamella": "SELECT location, row_count FROM {db}.`t$blocks` WHERE row_count > 1",
                "iceberg": "SELECT file_path, record_count, lower_bounds FROM {t}.files WHERE record_count > 1",
            },
            before=_MADE,
        ),
        Feature(
            "the file of a row",
            {
                "lamella": "SELECT _metadata.file_path FROM {t}",
                "delta": "SELECT _metadata.file_path FROM {t}",
                "iceberg": "SELECT _file FROM {t}",
            },
            before=_MADE,
        ),
        Feature(
            "the position of a row in its file",
            {
                "lamella": "SELECT _metadata.row_index FROM {t}",
                "delta": "SELECT _metadata.row_index FROM {t}",
                "iceberg": "SELECT _pos FROM {t}",
            },
            before=_MADE,
        ),
        Feature(
            "changed rows",
            {
                "lamella": "SELECT id, _change_type FROM {t} CHANGES FROM VERSION 3",
                "delta": "SELECT id, _change_type FROM table_changes('{t}', 2)",
                "iceberg": "CALL ice.system.create_changelog_view(table => '{t}')",
            },
            before=(_TABLE + " {with_changes}", _ROWS, "DELETE FROM {t} WHERE id = 2"),
        ),
        Feature(
            "a part of a VARIANT",
            "SELECT variant_get(x, '$.a', 'int') FROM {t} WHERE variant_get(x, '$.a', 'int') = 1",
            before=(
                "CREATE TABLE {t} (x VARIANT) {using} {with_v3}",
                "INSERT INTO {t} SELECT parse_json('{\"a\": 1}')",
            ),
        ),
    ),
    "Writing": (
        Feature(
            "INSERT", "INSERT INTO {t} (v, id) VALUES ('d', 4)", _ALL, [[1, "a"], [2, "b"], [3, "c"], [4, "d"]], _MADE
        ),
        Feature("INSERT OVERWRITE", "INSERT OVERWRITE {t} VALUES (9, 'z')", _ALL, [[9, "z"]], _MADE),
        Feature(
            "INSERT ... REPLACE WHERE",
            "INSERT INTO {t} REPLACE WHERE id < 3 VALUES (1, 'x')",
            _ALL,
            [[1, "x"], [3, "c"]],
            _MADE,
        ),
        Feature(
            "an overwrite by a condition",
            "spark.sql('SELECT 1 AS id, \"x\" AS v').writeTo('{t}').overwrite(F.col('id') < 3)",
            _ALL,
            [[1, "x"], [3, "c"]],
            _MADE,
        ),
        Feature("DELETE", "DELETE FROM {t} WHERE id = 2", _ALL, [[1, "a"], [3, "c"]], _MADE),
        Feature("DELETE by a subquery", "DELETE FROM {t} WHERE id IN (SELECT 2)", _ALL, [[1, "a"], [3, "c"]], _MADE),
        Feature("UPDATE", "UPDATE {t} SET v = upper(v) WHERE id > 1", _ALL, [[1, "a"], [2, "B"], [3, "C"]], _MADE),
        Feature(
            "UPDATE by a subquery",
            "UPDATE {t} SET v = 'x' WHERE id = (SELECT max(id) FROM {t})",
            _ALL,
            [[1, "a"], [2, "b"], [3, "x"]],
            _MADE,
        ),
        Feature(
            "MERGE",
            "MERGE INTO {t} t USING (SELECT * FROM VALUES (2, 'x'), (4, 'y') s(id, v)) s ON t.id = s.id "
            "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *",
            _ALL,
            [[1, "a"], [2, "x"], [3, "c"], [4, "y"]],
            _MADE,
        ),
        Feature(
            "MERGE with NOT MATCHED BY SOURCE",
            "MERGE INTO {t} t USING (SELECT 2 AS id) s ON t.id = s.id "
            "WHEN NOT MATCHED BY SOURCE AND t.id = 1 THEN DELETE WHEN NOT MATCHED BY SOURCE THEN UPDATE SET v = 'n'",
            _ALL,
            [[2, "b"], [3, "n"]],
            _MADE,
        ),
        Feature(
            "MERGE that brings a column",
            "MERGE WITH SCHEMA EVOLUTION INTO {t} t USING (SELECT 2 AS id, 'x' AS v, 7 AS w) s ON t.id = s.id "
            "WHEN MATCHED THEN UPDATE SET *",
            _ALL,
            [[1, "a", None], [2, "x", 7], [3, "c", None]],
            _MADE,
        ),
        Feature(
            "an append that brings a column",
            "spark.sql('SELECT 4 AS id, \"d\" AS v, 7 AS w').writeTo('{t}').option('mergeSchema', 'true').append()",
            "SELECT w FROM {t} WHERE id > 2",
            [[None], [7]],
            (*_MADE, "{allow_any_schema}"),
        ),
        Feature("CREATE TABLE AS", "CREATE TABLE {t} {using} AS SELECT 1 AS id", _ALL, [[1]]),
        Feature(
            "REPLACE TABLE AS, with other columns",
            "CREATE OR REPLACE TABLE {t} {using} AS SELECT 1 AS a, 2 AS b",
            _ALL,
            [[1, 2]],
            _MADE,
        ),
        Feature("TRUNCATE TABLE", "TRUNCATE TABLE {t}", _ALL, [], _MADE),
    ),
    "Definitions": (
        Feature(
            "DEFAULT",
            "INSERT INTO {t} (id) VALUES (1)",
            _ALL,
            [[1, 5]],
            ("CREATE TABLE {t} (id INT, b INT DEFAULT 5) {using} {with_defaults}",),
        ),
        Feature(
            "ADD COLUMN",
            "ALTER TABLE {t} ADD COLUMN w INT",
            _ALL,
            [[1, "a", None], [2, "b", None], [3, "c", None]],
            _MADE,
        ),
        Feature(
            "ADD COLUMN with DEFAULT, also for old rows",
            "ALTER TABLE {t} ADD COLUMN w INT DEFAULT 5",
            "SELECT DISTINCT w FROM {t}",
            [[5]],
            ("CREATE TABLE {t} (id INT, v STRING) {using} {with_defaults}", _ROWS),
        ),
        Feature(
            "RENAME COLUMN, DROP COLUMN",
            "ALTER TABLE {t} RENAME COLUMN v TO w",
            "SELECT w FROM {t} WHERE id = 1",
            [["a"]],
            ("CREATE TABLE {t} (id INT, v STRING) {using} {with_names}", _ROWS),
        ),
        Feature(
            "a wider type",
            "ALTER TABLE {t} ALTER COLUMN id TYPE BIGINT",
            "SELECT typeof(max(id)) FROM {t}",
            [["bigint"]],
            ("CREATE TABLE {t} (id INT, v STRING) {using} {with_types}", _ROWS),
        ),
        Feature(
            "SET DEFAULT, DROP DEFAULT",
            "ALTER TABLE {t} ALTER COLUMN b SET DEFAULT 6",
            "SELECT 1",
            [[1]],
            ("CREATE TABLE {t} (id INT, b INT DEFAULT 5) {using} {with_defaults}",),
        ),
        Feature(
            "NOT NULL is checked",
            "INSERT INTO {t} VALUES (NULL)",
            _ALL,
            [[1]],
            ("CREATE TABLE {t} (id INT NOT NULL) {using}", "INSERT INTO {t} VALUES (1)"),
            fails=True,
        ),
        Feature("SET NOT NULL", "ALTER TABLE {t} ALTER COLUMN id SET NOT NULL", "SELECT 1", [[1]], _MADE),
        Feature(
            "CHECK is checked",
            "INSERT INTO {t} VALUES (-1, 'x')",
            _ALL,
            [[1, "a"], [2, "b"], [3, "c"]],
            (*_MADE, "ALTER TABLE {t} ADD CONSTRAINT positive CHECK (id > 0)"),
            fails=True,
        ),
        Feature(
            "VARCHAR is checked",
            "INSERT INTO {t} VALUES ('abcd')",
            _ALL,
            [["abc"]],
            ("CREATE TABLE {t} (v VARCHAR(3)) {using}", "INSERT INTO {t} VALUES ('abc')"),
            fails=True,
        ),
        Feature(
            "generated columns",
            "INSERT INTO {t} (id) VALUES (2)",
            _ALL,
            [[2, 4]],
            ("CREATE TABLE {t} (id INT, b INT GENERATED ALWAYS AS (id * 2)) {using}",),
        ),
        Feature(
            "RENAME TABLE",
            {
                "lamella": "ALTER TABLE {t} RENAME TO {u}",
                "delta": "ALTER TABLE {t} RENAME TO {u}",
                "iceberg": "ALTER TABLE {t} RENAME TO {schema}.u",
            },
            "SELECT count(*) FROM {u}",
            [[3]],
            _MADE,
        ),
        Feature("CREATE TABLE LIKE", "CREATE TABLE {u} LIKE {t} {using}", "SELECT * FROM {u}", [], _MADE),
        Feature("SHOW CREATE TABLE", "SHOW CREATE TABLE {t}", before=_MADE),
        Feature(
            "SET, UNSET TBLPROPERTIES",
            "ALTER TABLE {t} UNSET TBLPROPERTIES ('a.b')",
            "SELECT 1",
            [[1]],
            (*_MADE, "ALTER TABLE {t} SET TBLPROPERTIES ('a.b' = 'c')"),
        ),
        Feature(
            "the analysis of a table",
            {
                "lamella": "CALL lake.system.analyze(table => '{name}')",
                "delta": "ANALYZE TABLE {t} COMPUTE STATISTICS",
                "iceberg": "CALL ice.system.compute_table_stats(table => '{t}')",
            },
            before=_MADE,
        ),
        Feature(
            "views in the catalog", "CREATE VIEW {u} AS SELECT id FROM {t}", "SELECT max(id) FROM {u}", [[3]], _MADE
        ),
    ),
    "Layout and upkeep": (
        Feature(
            "a cluster key",
            {
                "lamella": "CREATE TABLE {t} (id INT, v STRING) CLUSTER BY (id, v)",
                "delta": "CREATE TABLE {t} (id INT, v STRING) USING delta CLUSTER BY (id, v)",
            },
            "SELECT count(*) FROM {t}",
            [[0]],
        ),
        Feature(
            "compaction",
            {
                "lamella": "CALL lake.system.compact('{name}')",
                "delta": "OPTIMIZE {t}",
                "iceberg": "CALL ice.system.rewrite_data_files(table => '{t}')",
            },
            _ALL,
            [[1, "a"], [2, "b"], [3, "c"], [4, "d"]],
            (*_MADE, "INSERT INTO {t} VALUES (4, 'd')"),
        ),
        Feature(
            "sorting by several columns",
            {
                "lamella": "CALL lake.system.recluster('{name}')",
                "delta": "OPTIMIZE {t} ZORDER BY (id, v)",
                "iceberg": "CALL ice.system.rewrite_data_files("
                "table => '{t}', strategy => 'sort', sort_order => 'zorder(id, v)')",
            },
            "SELECT count(*) FROM {t}",
            [[3]],
            ("CREATE TABLE {t} (id INT, v STRING) {using} {clustered}", _ROWS),
        ),
        Feature(
            "removing old files",
            {
                "lamella": "CALL lake.system.vacuum('{name}')",
                "delta": "VACUUM {t}",
                "iceberg": "CALL ice.system.expire_snapshots(table => '{t}')",
            },
            "SELECT count(*) FROM {t}",
            [[3]],
            _MADE,
        ),
        Feature(
            "going back to a version",
            {
                "lamella": "CALL lake.system.rollback('{name}', '1')",
                "delta": "RESTORE TABLE {t} TO VERSION AS OF 0",
                "iceberg": "spark.sql(f\"CALL ice.system.rollback_to_snapshot('{t}', "
                "{spark.sql(f'SELECT snapshot_id FROM {t}.snapshots ORDER BY committed_at').first()[0]})\").collect()",
            },
            "SELECT count(*) FROM {t}",
            [[0]],
            (_TABLE, "INSERT INTO {t} SELECT 0, 'x' WHERE false", _ROWS),
        ),
        Feature(
            "tags",
            {
                "lamella": "CALL lake.system.tag('{name}', 'kept')",
                "iceberg": "ALTER TABLE {t} CREATE TAG kept",
            },
            "SELECT count(*) FROM {t} VERSION AS OF 'kept'",
            [[3]],
            _MADE,
        ),
        Feature("branches", {"iceberg": "ALTER TABLE {t} CREATE BRANCH b"}, "SELECT count(*) FROM {t}", [[3]], _MADE),
        Feature(
            "adding Parquet files as they are",
            {
                "lamella": "CALL lake.system.register('{name}', '{folder}')",
                "delta": "CONVERT TO DELTA parquet.`{folder}`",
                "iceberg": "CALL ice.system.add_files(table => '{t}', source_table => '`parquet`.`{folder}`')",
            },
            before=("spark.sql('SELECT 4 AS id, \"d\" AS v').write.parquet('{folder}')", _TABLE),
        ),
        Feature(
            "advice from the queries that were run", {"lamella": "CALL lake.system.advise('{name}')"}, before=_MADE
        ),
    ),
    "Streams": (
        Feature(
            "reading a table as a stream",
            "spark.readStream.table('{t}').writeStream.trigger(availableNow=True).format('memory').queryName('{query}')"
            ".option('checkpointLocation', '{folder}').start().awaitTermination()",
            "SELECT * FROM {query}",
            [[1, "a"], [2, "b"], [3, "c"]],
            _MADE,
        ),
        Feature(
            "writing a stream into a table",
            "spark.readStream.schema('id INT, v STRING').json('{files}').writeStream.trigger(availableNow=True){format}"
            ".option('checkpointLocation', '{folder}').toTable('{t}').awaitTermination()",
            _ALL,
            [[7, "s"]],
            (_TABLE, "spark.sql('SELECT 7 AS id, \"s\" AS v').write.json('{files}')"),
        ),
    ),
}
