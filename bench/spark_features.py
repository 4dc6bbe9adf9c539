"""Which Spark statements work on tables of Lamella, Delta and Iceberg.

    .venv/bin/python bench/spark_features.py lamella
    build/spark42/bin/python bench/spark_features.py delta
    build/spark41/bin/python bench/spark_features.py iceberg
    .venv/bin/python bench/spark_features.py --page

Each is asked on the newest Spark that it has jars for (``bench/spark_peers.py`` says how to make the environments), in
a new table for each feature (``bench/onspark/features.py``). What happened is in ``bench/spark_features.json``, of
which ``--page`` writes the table of ``docs/comparison.md``. ``--all`` prints whole errors.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from loopback import Service
from onspark.engines import settings
from onspark.features import FEATURES, SYSTEMS, Feature
from page_part import replace_part
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from lamella.client.spark import attach

ROOT: Final = Path(__file__).resolve().parent.parent
RECORDED: Final = ROOT / "bench" / "spark_features.json"
PAGE: Final = ROOT / "docs" / "comparison.md"

#: What stands in texts for a system: how its tables are named and made.
WORDS: Final[Mapping[str, Mapping[str, str]]] = {
    "lamella": {"catalog": "lake.", "clustered": "CLUSTER BY (id, v)"},
    "delta": {
        "catalog": "",
        "using": "USING delta",
        "format": ".format('delta')",
        "with_changes": "TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')",
        "with_defaults": "TBLPROPERTIES ('delta.feature.allowColumnDefaults' = 'supported')",
        "with_names": "TBLPROPERTIES ('delta.columnMapping.mode' = 'name')",
        "with_types": "TBLPROPERTIES ('delta.enableTypeWidening' = 'true')",
    },
    "iceberg": {
        "catalog": "ice.",
        "using": "USING iceberg",
        "allow_any_schema": "ALTER TABLE {t} SET TBLPROPERTIES ('write.spark.accept-any-schema' = 'true')",
        "with_defaults": "TBLPROPERTIES ('format-version' = '3')",
        "with_v3": "TBLPROPERTIES ('format-version' = '3')",
    },
}
_OPTIONAL: Final = (
    *("using", "format", "clustered", "allow_any_schema"),
    *("with_changes", "with_defaults", "with_names", "with_types", "with_v3"),
)
_WORKS: Final = "yes"
_NO_WAY: Final = "no statement"


def ask(spark: SparkSession, system: str, feature: Feature, number: int, folder: Path) -> str:
    """``yes``, or why a feature does not work."""
    own = WORDS[system]
    schema = f"f{number}"
    words = {
        **dict.fromkeys(_OPTIONAL, ""),
        **own,
        "schema": schema,
        "db": f"{own['catalog']}{schema}",
        "t": f"{own['catalog']}{schema}.t",
        "u": f"{own['catalog']}{schema}.u",
        "name": f"{schema}.t",
        "query": f"query_{number}",
        "folder": f"{folder}/{schema}",
        "files": f"{folder}/{schema}-files",
    }

    def meant(text: str) -> str:
        filled = re.sub(r"{(\w+)}", lambda found: words.get(found[1], found[0]), text)
        return filled if filled == text else meant(filled)

    def run(text: str) -> list[Any]:
        if not text:
            return []
        if text.startswith("spark."):
            eval(text, {"spark": spark, "F": F})  # noqa: S307  # a text of the list above
            return []
        return [list(row) for row in spark.sql(text).collect()]

    statement = feature.text_of(system)
    if statement is None:
        return _NO_WAY
    try:
        run(f"CREATE SCHEMA {words['db']}")
        for text in feature.before:
            run(meant(text))
        try:
            run(meant(statement))
        except Exception:
            if not feature.fails:
                raise
        else:
            if feature.fails:
                return "it is not refused"
        if feature.query:
            found = run(meant(feature.query))
            if sorted(map(str, found)) != sorted(map(str, map(list, feature.rows))):
                return f"other rows: {found}"
    except Exception as error:  # whatever they raise is the answer
        return reason(error)
    return _WORKS


def reason(error: Exception) -> str:
    """The condition of Spark's error or the first line of its message."""
    message = str(error.java_exception.toString()) if isinstance(error, Py4JJavaError) else str(error)
    code = getattr(error, "getCondition", lambda: None)()
    text = message.split("JVM stacktrace")[0].strip().splitlines()[0][:160] if message else type(error).__name__
    return f"{code}: {text}" if code and code not in text else text


def answers(spark: SparkSession, system: str, folder: Path) -> Iterator[tuple[str, str]]:
    """The name of each feature and how it went."""
    for number, feature in enumerate(each for some in FEATURES.values() for each in some):
        yield feature.name, ask(spark, system, feature, number, folder)


def session(folder: Path, ivy: Path, system: str) -> SparkSession:
    """A session with what the system needs."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    given = {
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(folder / "spark"),
        **(settings(folder, ivy) if system != "lamella" else {}),
    }
    if given.pop("spark.sql.catalog.ice.type", None):  # that of folders can neither rename tables nor keep views
        given["spark.sql.catalog.ice.catalog-impl"] = "org.apache.iceberg.inmemory.InMemoryCatalog"
    for name, value in given.items():
        builder = builder.config(name, value)
    made = builder.getOrCreate()
    made.sparkContext.setLogLevel("OFF")
    return made


def table(recorded: Mapping[str, Any]) -> str:
    """The Markdown table of what is recorded."""
    named = {"lamella": "Lamella", "delta": "Delta", "iceberg": "Iceberg"}
    heads = [f"{named[each]}, Spark {recorded[each]['spark']}" for each in SYSTEMS]
    lines = [f"| | {' | '.join(heads)} |", "| --- | --- | --- | --- |"]
    for area, features in FEATURES.items():
        lines.append(f"| **{area}** | | | |")
        for feature in features:
            cells = [cell(recorded[each]["answers"].get(feature.name, "not asked")) for each in SYSTEMS]
            lines.append(f"| {feature.name} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def cell(answer: str) -> str:
    """An answer in a few characters."""
    if answer in (_WORKS, "not asked"):
        return answer
    if answer == _NO_WAY:
        return "no"
    code = re.match(r"\[?([A-Z][A-Z0-9_]+(?:\.[A-Z0-9_]+)*|lamella\.\w+)\]?", answer)
    return f"no (`{code[1]}`)" if code else "no"


def main() -> None:
    """Ask one system, or write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("system", nargs="?", choices=SYSTEMS)
    parser.add_argument("--page", action="store_true")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--ivy", type=Path, default=ROOT / "build" / "ivy")
    given = parser.parse_args()
    recorded: dict[str, Any] = json.loads(RECORDED.read_text("utf-8")) if RECORDED.exists() else {}
    if given.page:
        replace_part(PAGE, "bench/spark_features.py --page", table(recorded))
        return
    if given.system is None:
        parser.error("name a system, or --page")
    with tempfile.TemporaryDirectory(prefix="lamella-bench-") as temporary:
        folder = Path(temporary)
        with contextlib.ExitStack() as stack:
            spark = session(folder, given.ivy.absolute(), given.system)
            stack.callback(spark.stop)
            if given.system == "lamella":
                service = stack.enter_context(Service(folder, {"warehouse": f"file://{folder}/warehouse"}))
                attach(spark, "lake", f"http://127.0.0.1:{service.port}")
            found = {}
            for name, answer in answers(spark, given.system, folder):
                found[name] = answer
                print(f"{name:50} {answer if given.all or answer == _WORKS else cell(answer)}", flush=True)
            version = spark.version
    recorded[given.system] = {"spark": version.rpartition(".")[0], "answers": found}
    RECORDED.write_text(json.dumps(recorded, indent=1, sort_keys=True) + "\n", "utf-8")


if __name__ == "__main__":
    main()
