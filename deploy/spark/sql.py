"""Run SQL over a Lamella service, which is the catalog `lake`: `spark-submit sql.py "SELECT count(*) FROM lake.db.t"`.

LAMELLA_URL says where the service is, LAMELLA_TOKEN_FILE where the key is. Each statement is an argument; rows are
printed as lines of JSON.
"""

import os
import sys

from pyspark.sql import SparkSession

from lamella.client import Lamella
from lamella.client.spark import attach


def main(statements: list[str]) -> None:
    """One after another; the first that fails ends it."""
    spark = SparkSession.builder.getOrCreate()
    with Lamella(os.environ["LAMELLA_URL"], token_file=os.environ.get("LAMELLA_TOKEN_FILE")) as client:
        attach(spark, "lake", client)
        for statement in statements:
            for row in spark.sql(statement).toJSON().collect():
                print(row, flush=True)
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1:])
