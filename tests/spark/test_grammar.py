"""Whatever Spark's grammar allows is done or refused; no error shows what is inside of the catalog."""

# ruff: noqa: S608 - the SQL of these tests has no input from outside

from __future__ import annotations

import random
import re
from collections.abc import Iterator

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from lamella.client.http import Lamella
from lamella.client.spark import attach
from spark.grammar import Grammar, Maker, Sentences
from spark.lakes import CATALOG, fresh

pytestmark = pytest.mark.spark

#: That Python runs behind the catalog, or that nobody thought of what happened.
INSIDE = re.compile(r"Traceback|Python Proxy|[Pp]y4[jJ]|File \"|in a callback of Spark|Spark calls \w+ of")
EXPRESSIONS = (
    *("a", "b", "s", "st.f", "1", "'x'", "NULL", "DEFAULT", "a + 1", "upper(s)", "current_date()"),
    *("CAST(a AS STRING)", "(SELECT max(a) FROM {t})", "named_struct('f', 1)", "transform(array(a), x -> x + 1)"),
)
CONDITIONS = ("a > 1", "s LIKE 'v%'", "a IN (SELECT b FROM {t})", "b IS NULL", "a = (SELECT max(a) FROM {t})", "true")
QUERIES = (
    "SELECT * FROM {t}",
    "SELECT 1 AS a, 2 AS b, 'x' AS s",
    "SELECT a FROM {t} WHERE a > 3",
    "VALUES (1, 2, 'x')",
)
TYPES = ("INT", "STRING", "BIGINT", "DECIMAL(10, 2)", "STRUCT<f: INT>", "ARRAY<INT>", "MAP<INT, INT>", "INTERVAL DAY")
OPTIONS = (
    "('lamella.target_block_rows' = '10')",
    "('x' = 'y')",
    "('write.delete.mode' = 'odd')",
    "(mergeSchema = true)",
)
#: Statements with these change the session or files elsewhere.
WITHOUT = ("DIRECTORY", "LOAD", "LOCATION", "TRANSFORM", "IMPORT", "EXPORT", "RESET")


@pytest.fixture(scope="module")
def grammar(spark: SparkSession) -> Grammar:
    """That of Spark's parser."""
    return Grammar(spark)


def sentences(grammar: Grammar, namespace: str) -> Sentences:
    """Sentences about the tables of a namespace."""
    table = f"{CATALOG}.{namespace}.t"

    def one_of(*texts: str) -> Maker:
        return lambda rng: rng.choice(texts).replace("{t}", table)

    tables = one_of(
        *[table] * 4, f"{CATALOG}.{namespace}.u", f"{CATALOG}.{namespace}.`t$blocks`", f"{CATALOG}.{namespace}"
    )
    columns = one_of("a", "b", "s", "st", "c")
    rules = {
        **dict.fromkeys(("identifierReference", "tableIdentifier", "temporalTableIdentifierReference"), tables),
        **dict.fromkeys(("errorCapturingIdentifier", "identifier", "strictIdentifier", "qualifiedName"), columns),
        "multipartIdentifier": one_of("a", "b", "s", "st.f", table),
        "expression": one_of(*EXPRESSIONS),
        "primaryExpression": one_of(*EXPRESSIONS),
        "booleanExpression": one_of(*CONDITIONS),
        "query": one_of(*QUERIES),
        "dataType": one_of(*TYPES),
        "stringLit": one_of("'a'", "'1'", "'2020-01-01'"),
        "propertyList": one_of(*OPTIONS),
        "tableProvider": one_of("USING lamella", "USING parquet", ""),
        "setResetStatement": one_of("SELECT 1"),
    }
    tokens = {
        **dict.fromkeys(("IDENTIFIER", "BACKQUOTED_IDENTIFIER"), columns),
        **dict.fromkeys(("STRING_LITERAL", "DOUBLEQUOTED_STRING"), one_of("'a'", "'1'")),
        "INTEGER_VALUE": one_of("1", "0", "2", "9999999999"),
        "RLIKE": one_of("RLIKE"),
        **{
            name: one_of(text) for name, text in (("EQ", "="), ("LTE", "<="), ("GTE", ">="), ("TEMPORARY", "TEMPORARY"))
        },
    }
    return Sentences(grammar, rules, tokens, WITHOUT)


def messages(error: Exception) -> Iterator[str]:
    """What a user sees of an error and of its causes; of one that is none of Spark's own, without Java's stack."""
    if not isinstance(error, Py4JJavaError):
        yield str(error)
        return
    cause = error.java_exception
    while cause is not None:
        yield str(cause.toString())
        cause = cause.getCause()


def ask(session: SparkSession, text: str) -> str | None:
    """Run a statement; what of its error is from the inside, None if nothing is."""
    try:
        session.sql(text).collect()
    except (PySparkException, Py4JJavaError) as error:
        return next((each for each in messages(error) if INSIDE.search(each)), None)
    return None


@pytest.mark.parametrize(
    ("seed", "count"), [(0, 30), *(pytest.param(seed, 250, marks=pytest.mark.soak) for seed in range(1, 21))]
)
def test_any_statement_is_done_or_refused(
    spark: SparkSession, lake: Lamella, grammar: Grammar, seed: int, count: int
) -> None:
    """With a message of Spark or of Lamella."""
    rng = random.Random(seed)
    namespace = fresh("grammar")
    lake.create_namespace(namespace)
    made = sentences(grammar, namespace)
    table = f"{CATALOG}.{namespace}.t"
    found = {}
    for at in range(count):
        if at % 20 == 0:
            session = spark.newSession()
            attach(session, CATALOG, lake)
        if at % 5 == 0:
            session.sql(f"DROP TABLE IF EXISTS {table}")
            session.sql(f"CREATE TABLE {table} (a INT, b INT, s STRING, st STRUCT<f: INT>)")
            session.sql(f"INSERT INTO {table} VALUES (1, 2, 'v', named_struct('f', 3)), (4, NULL, NULL, NULL)")
        text = made.make("statement", rng, rng.choice((6, 10, 20)))
        inside = ask(session, text)
        if inside is not None:
            found[text] = inside
    assert found == {}
