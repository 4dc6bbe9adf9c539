"""Iceberg's Java clients work on S3 with what the service gives them: temporary credentials, or signatures."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from conftest import path_from_script
from iceberg_rest.test_spark_writes import requested
from lamella.client.http import Lamella
from support.guarded_s3 import REGION, GuardedS3, GuardedService
from support.tenants import ROOT_KEY

pytestmark = [pytest.mark.soak, pytest.mark.spark]

_ROWS: Final = "SELECT id, name FROM ice.sales.t ORDER BY id"
_STATEMENTS: Final = (
    "CREATE TABLE ice.sales.t USING iceberg PARTITIONED BY (bucket(2, id)) TBLPROPERTIES ('format-version'='2',"
    " 'write.delete.mode'='merge-on-read') AS SELECT id, concat('n', id) AS name FROM range(0, 20)",
    "INSERT INTO ice.sales.t VALUES (100, 'x'), (101, NULL)",
    "DELETE FROM ice.sales.t WHERE id BETWEEN 5 AND 7",
    "MERGE INTO ice.sales.t t USING (SELECT id, 'merged' AS name FROM range(15, 25)) s ON t.id = s.id"
    " WHEN MATCHED THEN UPDATE SET t.name = s.name WHEN NOT MATCHED THEN INSERT *",
    "CALL ice.system.rewrite_data_files(table => 'ice.sales.t', options => map('rewrite-all', 'true'))",
    "CALL ice.system.expire_snapshots(table => 'sales.t', retain_last => 1, older_than => now())",
)
#: Over the smallest size of an upload in parts.
_LARGE: Final = (
    "CREATE TABLE ice.sales.large USING iceberg TBLPROPERTIES ('write.parquet.compression-codec'='uncompressed')"
    " AS SELECT id, sha2(cast(id AS string), 512) AS text FROM range(0, 120000, 1, 1)",
    "SELECT count(*), count(DISTINCT text) FROM ice.sales.large",
    "DROP TABLE ice.sales.large PURGE",
)
_OF_THE_READER: Final = ("SELECT id, name FROM seen.sales.t ORDER BY id", "INSERT INTO seen.sales.t VALUES (1, 'no')")


@pytest.mark.usefixtures("java_home")
@pytest.mark.parametrize("way", ["vended-credentials", "remote-signing"])
def test_spark_writes_on_s3_without_credentials_of_its_own(
    guarded_service: Callable[..., GuardedService], guarded: GuardedS3, tmp_path: Path, way: str
) -> None:
    """S3 denies what the service does not allow: a reader reads the same rows and writes nothing."""
    ways: dict[str, dict[str, Any]] = {
        "vended-credentials": {"iceberg_role_arn": guarded.role_arn, "iceberg_sts_url": guarded.endpoint_url},
        "remote-signing": {"iceberg_remote_signing": True},
    }
    service = guarded_service(**ways[way])
    url = service.server.url
    settings = {
        f"spark.sql.catalog.{catalog}{name}": value
        for catalog, key in (("ice", ROOT_KEY), ("seen", service.reader))
        for name, value in {
            "": "org.apache.iceberg.spark.SparkCatalog",
            ".type": "rest",
            ".uri": f"{url}/iceberg",
            ".token": key,
            ".header.X-Iceberg-Access-Delegation": way,
            ".io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
            ".client.region": REGION,
            ".s3.path-style-access": "true",
            ".s3.multipart.part-size-bytes": str(5 << 20),
            ".cache-enabled": "false",
            ".rest-catalog-purge": "true",  # or Spark deletes the files after the drop, when nothing is signed
        }.items()
    }
    queries = [*_STATEMENTS, _ROWS, *_LARGE, *_OF_THE_READER, _ROWS]
    found = requested(
        path_from_script("environment.py", "iceberg-spark"), url, queries, tmp_path, settings=settings, with_s3=True
    )
    for query, answer in zip(queries, found, strict=True):
        assert isinstance(answer, list) == (query != _OF_THE_READER[1]), f"{query}: {answer}"
    rows, (counted, dropped), seen, again = found[6], found[8:10], found[10], found[12]
    assert (counted, dropped) == ([["120000", "120000"]], [])
    assert seen == rows == again
    with Lamella(url, token=ROOT_KEY) as lake:
        read = lake.table("sales.t").scan(columns=["id", "name"], storage_options=json.loads(guarded.store_options))
        assert [[str(each["id"]), each["name"]] for each in read.to_arrow().sort_by("id").to_pylist()] == rows
    assert len(rows) == 24
