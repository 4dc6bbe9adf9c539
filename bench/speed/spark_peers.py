"""Delta and Iceberg on Spark, on the tables that delta-rs's and pyiceberg's engines have too.

What is timed is a query up to its physical plan and the inputs of its tasks: until its scan knows its files. The files
do not exist, and none is opened. Processor time is that of the JVM with its compiler and collector, and of this
process.
"""

from __future__ import annotations

import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyspark
from pyspark.sql import SparkSession
from synthetic import MODEL_VERSION, block_numbers

from speed.environments import DELTA_JAR, ICEBERG_JAR, IVY
from speed.questions import NAMES, Question, question, spark_time, sql

#: Planning each predicate so many times comes before what is measured: a JVM compiles what it runs often.
_WARM_UPS: Final = 3
#: Each name is a call of the JVM.
_NAMED: Final = 20_000


def session(jar: str, options: dict[str, str]) -> SparkSession:
    """Start Spark with two threads and the jar of a peer, which it fetches if it is not there."""
    builder = SparkSession.builder.master("local[2]").config("spark.jars.packages", jar)
    usual = {
        "spark.jars.ivy": str(IVY),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": "6g",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.local.dir": tempfile.gettempdir(),
        "spark.sql.warehouse.dir": str(Path.cwd() / "spark-warehouse"),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "4",
        **options,
    }
    for name, value in usual.items():
        builder = builder.config(name, value)
    made = builder.getOrCreate()
    made.sparkContext.setLogLevel("OFF")
    return made


class OnSpark:
    """``SELECT user_id ... WHERE`` planned by Spark; ``table`` is what stands after FROM."""

    note = "until the scan knows its files; each predicate was planned three times before; 2 threads"
    jar: str
    table: str
    options: dict[str, str]

    def __init__(self, folder: Path) -> None:
        self.versions = {self.jar.split(":")[1]: self.jar.split(":")[2], "pyspark": pyspark.__version__}
        self._folder = folder.absolute()

    def build(self, count: int) -> None:
        """Do nothing: another engine has made the table."""

    def open(self, count: int) -> None:
        """Start Spark, and let it know the table."""
        self.spark = session(self.jar, self.options)
        gateway: Any = self.spark.sparkContext._gateway
        self.helpers = [jvm_of(gateway.proc.pid)]
        self.load(count)

    def load(self, count: int) -> None:
        """Let the session know the table of ``count`` blocks."""
        raise NotImplementedError

    def warm_up(self) -> None:
        """Plan each predicate a few times, with literals that are not asked later."""
        for number in range(_WARM_UPS):
            for name in NAMES:
                self.run(question(name, 10_000 + number))

    def run(self, query: Question) -> Any:
        """The scan of the physical plan."""
        frame: Any = self.spark.sql(f"SELECT user_id FROM {self.table} WHERE {self.where(query)}")
        leaf = frame._jdf.queryExecution().sparkPlan().collectLeaves().head()
        rows = leaf.executeColumnar() if leaf.supportsColumnar() else leaf.execute()
        rows.getNumPartitions()
        return leaf

    def where(self, query: Question) -> str:
        """The predicate in Spark's SQL."""
        return sql(query, spark_time)


class Delta(OnSpark):
    """The table that delta-rs reads, by its path."""

    jar = DELTA_JAR
    options = {  # noqa: RUF012  # not changed
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    }

    def load(self, count: int) -> None:
        """Read the log for the first time."""
        self.table = f"delta.`file://{self._folder}/delta-model{MODEL_VERSION}-{count}`"
        self.spark.sql(f"SELECT user_id FROM {self.table}").schema  # noqa: B018  # asks for it

    def block_numbers(self, answer: Any) -> npt.NDArray[np.int64] | int:
        """The files of the index that Delta gave the scan; of more than can be fetched one by one, their number."""
        files = answer.relation().location().inputFiles()
        return np.sort(block_numbers([str(file) for file in files])) if len(files) <= _NAMED else len(files)


class Iceberg(OnSpark):
    """The table that pyiceberg reads, loaded once by its metadata file, as a view."""

    jar = ICEBERG_JAR
    table = "t"
    options = {  # noqa: RUF012  # not changed
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
    }

    def load(self, count: int) -> None:
        """Load the table."""
        root = self._folder / f"iceberg-model{MODEL_VERSION}-{count}"
        with closing(sqlite3.connect(root / "catalog.db")) as catalog:
            (location,) = catalog.execute("SELECT metadata_location FROM iceberg_tables").fetchone()
        self.spark.read.format("iceberg").load(location).createOrReplaceTempView(self.table)

    def block_numbers(self, answer: Any) -> npt.NDArray[np.int64] | int:
        """The files of the scan's tasks; of more than can be fetched one by one, their number, which it reports."""
        reported = answer.scan().reportDriverMetrics()
        count = int(next(each.value() for each in reported if each.name() == "resultDataFiles"))
        if count > _NAMED:
            return count
        partitions = answer.inputPartitions()
        tasks = (task for at in range(partitions.size()) for task in partitions.apply(at).taskGroup().tasks().toArray())
        return np.unique(block_numbers([str(task.file().location()) for task in tasks]))


def jvm_of(pid: int) -> int:
    """The JVM below the script that started it, which is itself where the script replaced itself."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    name = Path(f"/proc/{pid}/comm").read_text().strip()
    return pid if name == "java" or not children else jvm_of(int(children[0]))
