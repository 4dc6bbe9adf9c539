"""Spark's own reader on `s3a://`, with the jars of Hadoop that people add, beside blocks that jobs write on S3."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import s3fs

from fixtures_real_s3 import RealS3Server
from fixtures_s3 import S3Server
from fixtures_server import ServerProcess, start_shared
from support.spark_environment import spark_environment

# Long: Spark fetches the jars from Maven when they are not there yet.
pytestmark = [pytest.mark.soak, pytest.mark.spark, pytest.mark.s3]

PROGRAM = Path(__file__).with_name("s3_program.py")
#: Spark fetches the jars once (19 MB), and finds them here afterwards.
IVY = Path(__file__).resolve().parent.parent.parent / "build" / "ivy"


@pytest.fixture(scope="module", params=["s3", "real_s3"])
def server_s3(request: pytest.FixtureRequest) -> S3Server | RealS3Server:
    """moto, and a server that people run."""
    server: S3Server | RealS3Server = request.getfixturevalue(request.param)
    return server


@pytest.fixture(scope="module")
def bucket(server_s3: S3Server | RealS3Server) -> str:
    """Where the warehouse is."""
    return server_s3.bucket("spark-hadoop-aws")


@pytest.fixture(scope="module")
def found(
    java_home: Path,
    server_s3: S3Server | RealS3Server,
    bucket: str,
    pytestconfig: pytest.Config,
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[str, Any]:
    """What the program found."""
    assert java_home
    folder = tmp_path_factory.mktemp("s3-spark")
    options = json.dumps({"s3": server_s3.storage_options})
    settings = {"warehouse": f"{bucket}/warehouse", "store_options": options, "catalog": folder / "catalog.db"}
    server: ServerProcess = start_shared(pytestconfig, folder, settings)
    given = {
        "url": server.url,
        "options": server_s3.storage_options,
        "ivy": str(IVY),
        "scratch": f"{bucket}/scratch",
    }
    done = subprocess.run(
        [sys.executable, PROGRAM],
        input=json.dumps(given),
        capture_output=True,
        text=True,
        env=spark_environment(),
        cwd=folder,
        timeout=900,
        check=False,
    )
    server.stop()
    assert done.returncode == 0, done.stderr[-4000:]
    answer: dict[str, Any] = json.loads(done.stdout.strip().rsplit("\n", 1)[-1])
    return answer


def test_spark_reads_blocks_in_a_bucket_through_the_catalog(found: dict[str, Any], bucket: str) -> None:
    """By their s3a paths, only those that the filter leaves, and every row of them."""
    selected, of_all = found["blocks"]
    assert (selected, of_all) == (1, 10)
    assert found["few"] == found["few, truth"]
    (folder,) = found["folders"]
    assert folder.startswith(bucket.replace("s3://", "s3a://") + "/warehouse/")


def test_jobs_on_a_bucket_keep_every_row(found: dict[str, Any]) -> None:
    """After the writes, by `write` and by SQL, after a recluster on Spark, after a compaction without Spark."""
    truth = found["truth"]
    assert found["written"] == truth
    assert found["reclustered"] > 1
    assert found["after recluster"] == truth
    assert found["compacted"] > 1
    assert found["after compact"] == truth


def test_statements_change_the_rows_of_a_table_in_a_bucket(found: dict[str, Any]) -> None:
    """And Spark's reader, its Python workers and the Python scan leave out deleted rows, with the given credentials."""
    assert found["with vectors"] == [True] * 4
    for name, (truth, *others) in found["statements"].items():
        assert others == [truth] * 3, name


def test_jobs_on_a_bucket_leave_scratch_space_empty(
    found: dict[str, Any], server_s3: S3Server | RealS3Server, bucket: str
) -> None:
    """What went through it is gone."""
    assert found
    files = s3fs.S3FileSystem(**server_s3.storage_options, skip_instance_cache=True)
    names = [name for name in files.find(bucket) if not name.endswith("/")]  # s3a leaves markers of folders
    assert [name for name in names if "/_tmp/" in name or "/scratch/" in name] == []
    assert [name for name in names if "/_b/" in name] != []
