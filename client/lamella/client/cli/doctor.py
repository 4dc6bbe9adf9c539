"""``lamella doctor``: what this machine and the service lack, each with its remedy."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Generator, Iterator, Mapping
from email.utils import parsedate_to_datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final, Literal

import click
import msgspec

from lamella.client.cli.arguments import store_options
from lamella.client.cli.connection import Target, connect, service_option, service_options, target_of
from lamella.client.cli.output import print_table
from lamella.client.cli.rows import DataWriter, RowFormat, form_of, output_options
from lamella.client.http import NO_RETRY, Lamella
from lamella.client.http.runtime import open_transport
from lamella.client.http.transport import HttpRequest, HttpResponse, Transport, TransportFailure
from lamella.snapshot.errors import LamellaError, NotFound, PermissionDenied, Unauthenticated
from lamella.snapshot.storage import FsspecStore
from lamella.snapshot.wire import Problem

State = Literal["ok", "warning", "failure"]
#: Clocks that differ by more than this are reported. Stores refuse signed requests at about fifteen minutes.
_CLOCK_S: Final = 5.0
_CLOCK_FAILURE_S: Final = 300.0
#: The first Java that Spark 4 runs on, and the first Python that Lamella runs on.
_JAVA: Final = 17
_PYTHON: Final = (3, 11)
_SPARK: Final = (4, 0)
#: Tables that are looked at for a file to read.
_MAX_TABLES: Final = 20
_READ_BYTES: Final = 8
#: Packages of extras, and what needs them.
_OPTIONAL: Final = {
    "httpx2": ("aio", "AsyncLamella"),
    "s3fs": ("s3", "files on S3"),
    "duckdb": ("duckdb", "lamella sql"),
}
_SHOWN: Final = {"ok": "ok", "warning": "warning", "failure": "FAILURE"}


class Finding(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What was looked at, how it is, and what to do about it."""

    name: str
    state: State
    text: str
    remedy: str = ""


@click.command()
@store_options
@service_options(10.0)
@output_options("The same as -o json: the findings, and nothing else.")
def doctor(
    storage_options: Mapping[str, Mapping[str, Any]],
    url: str | None,
    profile: str | None,
    token: str | None,
    token_file: str | None,
    timeout_s: float,
    output: RowFormat | None,
    as_json: bool,
) -> None:
    """Check this machine and the service: Python, packages, Java, Spark, the service with its catalog and its store,
    the key, the clock, and whether files of a table can be read from here.

    Nothing is changed. Exit status 1: something failed; warnings alone are status 0.
    """
    form = form_of(output, as_json=as_json)
    found = [*machine_findings(os.environ)]
    try:
        service = service_option(click.get_current_context(), url, profile, token, token_file)
    except LamellaError as error:
        found.append(Finding(name="service", state="failure", text=error.message, remedy="repair or name a profile"))
    else:
        found += service_findings(target_of(service, timeout_s), storage_options or {})
    if form != "table":
        DataWriter(form).write(found)
    else:
        print_table(
            ["", "", "", "what to do"], ([each.name, _SHOWN[each.state], each.text, each.remedy] for each in found)
        )
    if any(each.state == "failure" for each in found):
        raise click.exceptions.Exit(1)


def machine_findings(environment: Mapping[str, str]) -> Iterator[Finding]:
    """Yield what is on this machine: Python, the packages of extras, Java and Spark."""
    python = f"Python {platform.python_version()}, lamella {version('lamella')}"
    if sys.version_info >= _PYTHON:
        yield Finding(name="python", state="ok", text=python)
    else:
        yield Finding(name="python", state="failure", text=python, remedy="use Python 3.11 or newer")
    lacking = [(name, *_OPTIONAL[name]) for name in _OPTIONAL if _version(name) is None]
    if lacking:
        text = "; ".join(f"{name} is not installed ({what})" for name, _, what in lacking)
        extras = ",".join(extra for _, extra, _ in lacking)
        yield Finding(name="packages", state="warning", text=text, remedy=f"if needed: pip install 'lamella[{extras}]'")
    else:
        yield Finding(name="packages", state="ok", text=f"{', '.join(_OPTIONAL)} are installed")
    spark = _version("pyspark") or _version("pyspark-client")
    if spark is None:
        remedy = "if you use Spark: pip install 'lamella[spark]'"
        yield Finding(name="spark", state="warning", text="PySpark is not installed", remedy=remedy)
    elif _numbers(spark) < _SPARK:
        yield Finding(name="spark", state="failure", text=f"PySpark {spark}", remedy="install PySpark 4.0 or newer")
    else:
        yield Finding(name="spark", state="ok", text=f"PySpark {spark}")
    yield java_finding(environment, needed=spark is not None)


def java_finding(environment: Mapping[str, str], *, needed: bool) -> Finding:
    """Return what Spark would start: the Java of ``JAVA_HOME``, or else the one on the path."""
    state: State = "failure" if needed else "warning"
    home = environment.get("JAVA_HOME")
    program = str(Path(home) / "bin" / "java") if home else shutil.which("java", path=environment.get("PATH"))
    remedy = f"install Java {_JAVA} or newer, and set JAVA_HOME to it"
    if program is None:
        return Finding(name="java", state=state, text="there is no java on the path", remedy=remedy)
    try:
        done = subprocess.run([program, "-version"], check=False, capture_output=True, text=True, timeout=30.0)
    except (OSError, subprocess.TimeoutExpired) as error:
        return Finding(name="java", state=state, text=f"{program} does not run: {error}", remedy=remedy)
    match = re.search(r'version "(\d+)(?:\.(\d+))?[^"]*"', done.stderr + done.stdout)
    if match is None:
        return Finding(name="java", state=state, text=f"{program} tells no version", remedy=remedy)
    number = int(match[2] or 0) if match[1] == "1" else int(match[1])  # 1.8 is Java 8
    text = f"Java {number} ({program})"
    if number < _JAVA:
        return Finding(name="java", state=state, text=text, remedy=remedy)
    return Finding(name="java", state="ok", text=text)


def service_findings(target: Target, storage_options: Mapping[str, Mapping[str, Any]]) -> Iterator[Finding]:
    """Yield what is with the service: whether it answers and is ready, the clocks, the key, and a file of a table."""
    try:
        lake = connect(target, policy=NO_RETRY, traces=False)
    except (LamellaError, click.ClickException) as error:
        yield Finding(name="service", state="failure", text=error.message, remedy="name another service or folder")
        return
    with lake:
        if lake.url.startswith("file://"):
            # It is ready, or would not have been opened; and its clock is this one's.
            yield Finding(name="service", state="ok", text=f"the lake in {lake.url}, opened in this process")
        else:
            reached = yield from _reached(lake.url, target.timeout_s)
            if not reached:
                return
        yield from _requests(lake, storage_options)


def _reached(url: str, timeout_s: float) -> Generator[Finding, None, bool]:
    """Yield whether the service is there and ready, and how its clock differs; return whether it can be asked."""
    transport: Transport = open_transport(url, timeout_s)
    try:
        begun_s = time.time()
        answer = transport.send(HttpRequest(method="GET", target="/health/ready"))
        ended_s = time.time()
    except TransportFailure as error:
        remedy = "start a service with `lamella serve`, or name another one by --url or --profile"
        yield Finding(name="service", state="failure", text=f"{url}: {error.reason}", remedy=remedy)
        return False
    finally:
        transport.close()
    yield _ready(url, answer)
    clock = _clock(answer.headers.get("date"), begun_s, ended_s)
    if clock is not None:
        yield clock
    return answer.status < 300


def _ready(url: str, answer: HttpResponse) -> Finding:
    if answer.status < 300:
        return Finding(name="service", state="ok", text=f"{url} is ready: its catalog and its warehouse answer")
    try:
        problem = msgspec.json.decode(answer.body, type=Problem)
    except msgspec.MsgspecError:
        text = f"{url} answers with status {answer.status}, and not as a service of Lamella does"
        return Finding(name="service", state="failure", text=text, remedy="check the address, and proxies before it")
    remedy = "run `lamella catalog migrate`" if problem.code == "catalog_outdated" else "see the service's log"
    return Finding(name="service", state="failure", text=f"{problem.detail} [{problem.code}]", remedy=remedy)


def _clock(date: str | None, begun_s: float, ended_s: float) -> Finding | None:
    """Return how the service's clock differs from this machine's, which is somewhere in a second of the header's."""
    try:
        theirs_s = parsedate_to_datetime(date or "").timestamp()
    except ValueError:
        return None
    min_apart_s, max_apart_s = theirs_s - ended_s, theirs_s + 1.0 - begun_s
    apart_s = max(min_apart_s, -max_apart_s, 0.0)
    if apart_s <= _CLOCK_S:
        return Finding(name="clock", state="ok", text=f"within {_CLOCK_S:g} s of the service's")
    which = "behind" if min_apart_s > 0 else "ahead of"
    return Finding(
        name="clock",
        state="failure" if apart_s > _CLOCK_FAILURE_S else "warning",
        text=f"this machine is {apart_s:,.0f} s {which} the service",
        remedy="set the clocks by NTP: signed URLs, tokens and leases go by them",
    )


def _requests(lake: Lamella, storage_options: Mapping[str, Mapping[str, Any]]) -> Iterator[Finding]:
    try:
        theirs, ours = lake.config().version, version("lamella")
        if theirs == ours:
            yield Finding(name="version", state="ok", text=f"client and service are {ours}")
        else:
            text = f"the client is {ours}, the service {theirs}"
            yield Finding(name="version", state="warning", text=text, remedy="install the same release")
        identity = lake.whoami()
        yield Finding(name="key", state="ok", text=f"the service knows this client as {identity.principal}")
        yield _file(lake, storage_options)
    except (Unauthenticated, PermissionDenied) as error:
        remedy = "give a key by --token, --token-file or a profile; an administrator makes one"
        yield Finding(name="key", state="failure", text=error.message, remedy=remedy)
    except LamellaError as error:
        yield Finding(name="requests", state="failure", text=f"{error.message} [{error.code}]", remedy="see its log")


def _file(lake: Lamella, storage_options: Mapping[str, Mapping[str, Any]]) -> Finding:
    """Return whether the first file that is found in a table can be read from here, as readers do."""
    location = next(_locations(lake), None)
    if location is None:
        return Finding(name="store", state="ok", text="no table has rows that could be read from here")
    try:
        FsspecStore({scheme: dict(options) for scheme, options in storage_options.items()}).read_range(
            location, 0, _READ_BYTES
        )
    except ModuleNotFoundError as error:
        text, remedy = f"{location}: {error.name} is not installed", "pip install 'lamella[s3]'"
        return Finding(name="store", state="failure", text=text, remedy=remedy)
    except (LamellaError, OSError, ValueError) as error:
        remedy = "give credentials (LAMELLA_STORE_OPTIONS), or read by signed URLs"
        return Finding(name="store", state="failure", text=f"{location} cannot be read: {error}", remedy=remedy)
    return Finding(name="store", state="ok", text=f"a file of a table can be read from here: {location}")


def _locations(lake: Lamella) -> Iterator[str]:
    looked = 0
    for space in lake.namespaces():
        for name in lake.tables(space.name):
            if looked == _MAX_TABLES:
                return
            looked += 1
            try:
                answer = lake.table(f"{space.name}.{name}").prune(limit=1)
            except (NotFound, PermissionDenied):
                continue
            yield from list(answer.locations)[:1]


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", text)[:2])
