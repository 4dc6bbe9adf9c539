"""Settings and fixtures for every test."""

import gc
import os
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import is_hypothesis_test, settings

ROOT = Path(__file__).resolve().parent.parent

# No test asserts on the clock, so hypothesis may not time an example either: on a busy machine any can be slow.
settings.register_profile("lamella", deadline=None, print_blob=True)
settings.register_profile("check", deadline=None, print_blob=True)
settings.register_profile("soak", deadline=None, print_blob=True, max_examples=1_000)
PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "lamella")
settings.load_profile(PROFILE)


class Share(NamedTuple):
    """How many of the examples that a property test declares a profile tries."""

    one_in: int
    #: Fewer are not tried, unless the test declares fewer.
    min_examples: int
    #: Where an example takes seconds (the mark ``dear``).
    min_dear_examples: int


# `make test` and `make check`; `make soak` tries all examples.
SHARES = {"lamella": Share(6, 12, 4), "check": Share(20, 5, 2)}

# Spark's Python workers run the Python of the tests, and Spark does not depend on how this host's name resolves.
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
# A Java that compiles less starts sooner and takes less than half of the processor time; no test runs long enough to
# gain from more.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xshare:auto")
# The services of tests share a disk that may be busy for longer than a probe waits by default.
os.environ.setdefault("LAMELLA_READY_TIMEOUT_S", "30")
# No profile of the machine has a say.
os.environ["LAMELLA_PROFILES_FILE"] = str(ROOT / "build" / "no-profiles.toml")

# Fixtures that several folders of tests share.
pytest_plugins = (
    "areas",
    "leftovers",
    "fixtures_catalog",
    "fixtures_postgres",
    "fixtures_real_s3",
    "fixtures_s3",
    "fixtures_server",
)

# Each of these has a server that is dear to start, so all its tests run in one process, one after another.
ONE_PROCESS_MARKERS = ("spark", "postgres", "s3", "browser")
#: Processes for the tests with Spark, which are the longest way through the suite; each starts a Java of its own.
SPARK_PROCESSES = 2

# What starts processes or servers, which `make check` leaves out.
PROCESS_FIXTURES = frozenset(
    {"start_server", "server", "shared_server", "local", "world", "jobs_url", "java_home", "postgres_bin"}
)
PROCESS_MODULES = frozenset({"subprocess", "multiprocessing", "ServerProcess", "LocalEngine", "Nursling"})
PROCESS_FOLDERS = frozenset({"bench", "deploy", "docs", "jobs", "kill", "worker"})

# `make check` runs none of their tests, and to import them takes seconds.
collect_ignore: list[str] = []
if PROFILE == "check":
    collect_ignore += sorted(PROCESS_FOLDERS | {"spark"})
# jsonschema imports this if it is there, to check IRIs, which no schema of these tests has. That takes 3 seconds.
sys.modules["rfc3987_syntax"] = None  # type: ignore[assignment]

_SETTINGS = "_hypothesis_internal_use_settings"

_GATEWAY_PORTS = pytest.StashKey[set[int]]()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep tests that share a costly server together when pytest-xdist spreads the tests over processes, and others
    with those of their file, whose fixtures they share. Mark what starts processes, and bound property tests."""
    _leave_cases_to_soak(items)
    seen: set[object] = set()
    spark_files: dict[Path, int] = {}
    for item in items:
        function = getattr(item, "obj", None)
        function = getattr(function, "__func__", function)
        is_property = is_hypothesis_test(function)  # its marker is not set yet
        share = SHARES.get(PROFILE)
        if share and is_property and function not in seen and not item.get_closest_marker("soak"):
            seen.add(function)
            _try_fewer(function, share, is_dear=item.get_closest_marker("dear") is not None)
        if _starts_processes(item):
            item.add_marker(pytest.mark.process)
        name = next((name for name in ONE_PROCESS_MARKERS if item.get_closest_marker(name)), None)
        if name == "spark":
            name += str(spark_files.setdefault(item.path, len(spark_files)) % SPARK_PROCESSES)
        item.add_marker(pytest.mark.xdist_group(name or item.path.relative_to(ROOT / "tests").as_posix()))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Let the garbage collector rest, and then leave alone what stays to the end, which takes 0.4 s each time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish() -> None:
    """Let extension modules find at exit what they made."""
    gc.unfreeze()


def _leave_cases_to_soak(items: list[pytest.Item]) -> None:
    """Mark the cases of tests that have the mark ``few``, but for as many as it says."""
    cases: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("few") and not item.get_closest_marker("soak"):
            cases.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for each in cases.values():
        mark = each[0].get_closest_marker("few")
        assert mark is not None
        count = min(mark.args[0], len(each))
        stay = {at * len(each) // count for at in range(count)}
        for at, item in enumerate(each):
            if at not in stay:
                item.add_marker(pytest.mark.soak)


def _try_fewer(function: Any, share: Share, *, is_dear: bool = False) -> None:
    """Lower the number of examples of a property test. Hypothesis has no public way to do this from outside a test."""
    given = getattr(function, _SETTINGS, None) or settings()
    fewest = share.min_dear_examples if is_dear else share.min_examples
    if given.max_examples > fewest:
        setattr(function, _SETTINGS, settings(given, max_examples=max(fewest, given.max_examples // share.one_in)))


def _starts_processes(item: pytest.Item) -> bool:
    """Whether a test may start one: by a mark, by a fixture, or by a module that its own module imports."""
    names: set[str] = set(getattr(item, "fixturenames", ()))
    module = vars(getattr(item, "module", object))
    return (
        any(item.get_closest_marker(name) for name in ONE_PROCESS_MARKERS)
        or not PROCESS_FIXTURES.isdisjoint(names)
        or not PROCESS_MODULES.isdisjoint(module)
        or item.path.relative_to(ROOT / "tests").parts[0] in PROCESS_FOLDERS
    )


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    """Let py4j leave to the garbage collector the connections of threads that have ended; it has no way to close them.

    Wherever they are collected, perhaps tests later, the warning would fail a test that has nothing to do with it.
    """
    port = _gateway_port()
    if port is not None and port not in item.config.stash.setdefault(_GATEWAY_PORTS, set()):
        item.config.stash[_GATEWAY_PORTS].add(port)
        left = rf"ignore:unclosed <socket.*raddr=\('127.0.0.1', {port}\):ResourceWarning"
        item.config.addinivalue_line("filterwarnings", left)


def _gateway_port() -> int | None:
    """Where the Java process of Spark listens for this one, once there is one."""
    core = sys.modules.get("pyspark.core.context")
    gateway = None if core is None else core.SparkContext._gateway
    return None if gateway is None else int(gateway.java_parameters.port)


def path_from_script(name: str, *arguments: str) -> Path:
    """The path that one of the finders in scripts/ prints; fails the test with its message when it finds nothing."""
    done = subprocess.run(
        [sys.executable, ROOT / "scripts" / name, *arguments], check=False, capture_output=True, text=True
    )
    if done.returncode != 0:
        pytest.fail(done.stderr)
    return Path(done.stdout.strip())


@pytest.fixture(scope="session")
def java_home() -> Path:
    """The Java that Spark uses in these tests; sets JAVA_HOME, so ask for this before a Spark session starts."""
    home = path_from_script("java_home.py")
    os.environ["JAVA_HOME"] = str(home)
    return home


@pytest.fixture(scope="session")
def postgres_bin() -> Path:
    """The folder that holds PostgreSQL's `initdb`, `pg_ctl` and `postgres`."""
    return path_from_script("postgres_bin.py")
