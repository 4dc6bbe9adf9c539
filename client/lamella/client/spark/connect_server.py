"""Starts a Spark Connect server with catalogs of Lamella: ``python -m lamella.client.spark.connect_server --help``.

Its clients need nothing of Lamella: SQL and DataFrames over ``lake.db.t`` work as on a classic session.
"""

from __future__ import annotations

import argparse
import signal
import sys
import threading
from collections.abc import Sequence
from typing import Any

from lamella.client.spark import attach
from lamella.client.spark.gateway import Gateway
from lamella.snapshot.errors import InvalidRequest, LamellaError

_PLUGIN = "org.apache.spark.sql.connect.SparkConnectPlugin"
_SERVICE = "org.apache.spark.sql.connect.service.SparkConnectService"
_BINDING = "spark.connect.grpc.binding."


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until SIGINT or SIGTERM; return the exit code."""
    given = _parser().parse_args(arguments)
    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    try:
        spark = _session(given)
    except LamellaError as error:
        print(f"error: {error.message}", file=sys.stderr)
        return 2
    try:
        for name, url in given.catalog:
            attach(spark, name, url, new_sessions=True)
        port = Gateway(spark).scala_object(_SERVICE).localPort()
        print(
            f"Spark Connect: sc://{given.host}:{port} with {', '.join(name for name, _ in given.catalog)}", flush=True
        )
        ended.wait()
    except LamellaError as error:
        print(f"error: {error.message}", file=sys.stderr)
        return 1
    finally:
        spark.stop()
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m lamella.client.spark.connect_server",
        description="Start a Spark Connect server whose sessions have catalogs of Lamella.",
        epilog="The services get the key in LAMELLA_TOKEN or LAMELLA_TOKEN_FILE, for all clients of this server.",
    )
    parser.add_argument(
        "--catalog", type=_catalog, action="append", required=True, metavar="NAME=URL", help="can be repeated"
    )
    parser.add_argument("--host", default="127.0.0.1", help="the address to listen on (default: %(default)s)")
    parser.add_argument("--port", type=int, default=15002, help="0 for a free one (default: %(default)s)")
    parser.add_argument(
        "--conf",
        type=_pair,
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a setting of Spark; can be repeated",
    )
    return parser


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=VALUE")
    return name, value


def _catalog(text: str) -> tuple[str, str]:
    name, url = _pair(text)
    if not url.startswith(("http://", "https://")):
        raise argparse.ArgumentTypeError(f"{url!r} is not the URL of a service")
    return name, url


def _session(given: argparse.Namespace) -> Any:
    """Return a classic session, in whose JVM the server runs."""
    from pyspark.sql import SparkSession

    settings = {
        "spark.app.name": "lamella-connect",
        **dict(given.conf),
        f"{_BINDING}address": given.host,
        f"{_BINDING}port": str(given.port),
    }
    plugins = [each for each in settings.get("spark.plugins", "").split(",") if each]
    settings["spark.plugins"] = ",".join(dict.fromkeys([*plugins, _PLUGIN]))
    builder = SparkSession.builder.config("spark.api.mode", "classic")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    if not hasattr(spark, "_jvm"):
        raise InvalidRequest("this needs a Spark of its own; unset SPARK_REMOTE")
    return spark


if __name__ == "__main__":
    sys.exit(main())
