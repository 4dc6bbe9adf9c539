"""What is built holds every module, installs alone, and imports as a zip file, as Spark's `--py-files` needs."""

import re
import subprocess
import sys
import tomllib
import venv
import zipfile
from email import message_from_string
from email.message import Message
from pathlib import Path

import markdown_it
import pytest
import trove_classifiers

from hatch_build import is_absolute, package_page, project_urls

ROOT = Path(__file__).resolve().parent.parent
CODE_ROOTS = ("snapshot", "service", "client")
PARTS = ("lamella.snapshot", "lamella.service", "lamella.client")


def run(*command: str | Path, cwd: Path) -> str:
    """Run a command that must succeed; returns what it printed."""
    done = subprocess.run(command, check=False, cwd=cwd, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel that was built from the sdist, with no network: the build tools are in the environment already."""
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT, cwd=folder)
    (built,) = folder.glob("*.whl")
    assert len(list(folder.glob("*.tar.gz"))) == 1
    return built


@pytest.fixture(scope="module")
def names(wheel: Path) -> set[str]:
    """The paths inside the wheel."""
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


#: A home as a maintainer sets it in pyproject.toml.
HOME = {
    "url": "https://host.example/owner/lamella/",
    "page": "{url}/blob/v{version}/{path}",
    "picture": "{url}/raw/v{version}/{path}",
    "issues": "{url}/issues",
}


def metadata_of(wheel: Path) -> Message:
    """The METADATA of a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (each for each in archive.namelist() if each.endswith(".dist-info/METADATA"))
        return message_from_string(archive.read(name).decode())


def relative(page: str) -> list[str]:
    """The targets of a page's links and pictures, as HTML has them, that name no scheme."""
    targets: list[str] = re.findall(r'(?:href|src)="([^"]*)"', markdown_it.MarkdownIt().render(page))
    return [target for target in targets if not is_absolute(target)]


def test_the_page_of_the_package_has_no_relative_link_or_picture(wheel: Path) -> None:
    """In the metadata that was built, whatever home pyproject.toml names; README.md itself has such links."""
    metadata = metadata_of(wheel)
    page = str(metadata.get_payload())
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert relative((ROOT / "README.md").read_text("utf-8"))
    assert relative(page) == []
    assert "pip install 'lamella[service,spark]'" in page
    home = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["lamella"]["home"]
    urls = dict(line.split(", ", 1) for line in metadata.get_all("Project-URL", []))
    assert urls == project_urls(home, metadata["Version"])
    assert all(re.fullmatch(r"https://[^{}]+", url) for url in urls.values())


def test_links_of_the_page_lead_to_files_of_the_tag() -> None:
    """With a home every link and picture is kept; what it leads to is in the repository."""
    text = (ROOT / "README.md").read_text("utf-8")
    page = package_page(text, HOME, "1.2.0")
    html = markdown_it.MarkdownIt().render(page)
    assert relative(page) == []
    assert len(re.findall("<img|<a", html)) == len(re.findall("<img|<a", markdown_it.MarkdownIt().render(text)))
    files = re.findall(r'"https://host\.example/owner/lamella/(?:blob|raw)/v1\.2\.0/([^"#]+)', html)
    assert len(files) > 10
    assert [name for name in files if not (ROOT / name).is_file()] == []
    assert project_urls(HOME, "1.2.0")["Issues"] == "https://host.example/owner/lamella/issues"


@pytest.mark.parametrize("home", [HOME, HOME | {"url": ""}])
def test_code_and_absolute_links_of_the_page_stay(home: dict[str, str]) -> None:
    """Code may look like a link, and a link may lead elsewhere or into the page."""
    text = "[a](https://x.example) [b](#c) [![d](mailto:e)](https://f.example)\n\n```python\nx[0](y)\n```\n"
    assert package_page(text, home, "1") == text


def test_the_classifiers_name_the_oldest_python_and_all_that_are_tried() -> None:
    """An index refuses classifiers that it does not know; `twine check` does not look at them."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert [name for name in project["classifiers"] if name not in trove_classifiers.classifiers] == []
    named = re.findall(r"Python :: (3\.\d+)", " ".join(project["classifiers"]))
    assert named[0] == project["requires-python"].removeprefix(">=")


def test_every_file_below_the_three_roots_is_in_the_wheel(names: set[str]) -> None:
    """A wheel built from the sdist lacks no module, no marker and no data file that the checkout has."""
    roots = [ROOT / name for name in CODE_ROOTS]
    sources = {
        str(path.relative_to(root))
        for root in roots
        for path in root.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert {f"{part.replace('.', '/')}/__init__.py" for part in PARTS} <= sources
    assert sources - names == set()


def test_the_wheel_holds_nothing_else(names: set[str]) -> None:
    """Tests, scripts and settings stay out of the wheel, and nothing but our two packages is put at the top level."""
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} <= {"lamella", "pyspark_lamella"}


def test_each_part_is_marked_as_typed(names: set[str]) -> None:
    """Type checkers of our users read our annotations."""
    assert {f"{part.replace('.', '/')}/py.typed" for part in PARTS} <= names


def test_only_the_wheel_has_a_regular_lamella_package(names: set[str]) -> None:
    """On disk `lamella` must be a namespace over three roots, or each root would hide the others; in a wheel it must
    be a regular package, or zipimport would not find it."""
    assert "lamella/__init__.py" in names
    assert [root for root in CODE_ROOTS if (ROOT / root / "lamella" / "__init__.py").exists()] == []


def test_the_wheel_is_importable_as_a_zip_file(wheel: Path) -> None:
    """All three parts import straight from the wheel by zipimport."""
    program = f"""
import sys
sys.path.insert(0, {str(wheel)!r})
import importlib
for name in {PARTS!r}:
    module = importlib.import_module(name)
    print(type(module.__spec__.loader).__name__, module.__file__.startswith({str(wheel)!r}))
"""
    printed = run(sys.executable, "-I", "-c", program, cwd=wheel.parent)
    assert printed.splitlines() == ["zipimporter True"] * len(PARTS)


def test_the_wheel_installs_alone_into_an_empty_environment(wheel: Path, tmp_path: Path) -> None:
    """An install into a fresh environment puts the parts and the command in place without any checkout."""
    environment = tmp_path / "environment"
    venv.create(environment, with_pip=False)
    python = environment / "bin" / "python"
    pip: list[str | Path] = [sys.executable, "-m", "pip", "--python", python, "--disable-pip-version-check"]
    run(*pip, "install", "--no-deps", "--no-index", wheel, cwd=tmp_path)
    program = f"""
from importlib.util import find_spec
print(*(find_spec(name).origin for name in {PARTS!r}), sep="\\n")
"""
    origins = run(python, "-I", "-c", program, cwd=tmp_path).splitlines()
    assert [Path(origin).is_relative_to(environment) for origin in origins] == [True] * len(PARTS)
    assert (environment / "bin" / "lamella").exists()


#: What each part works with: the modules that it imports, and packages of extras that it has.
WITHOUT_EXTRAS: dict[str, tuple[list[str], set[str]]] = {
    "client": (
        [
            "lamella.client.cli.app",
            "lamella.client.jobs.delete",
            "lamella.client.jobs.rewrite",
            "lamella.client.jobs.worker",
            "lamella.client.scan.row_changes",
            "lamella.client.scan.scan",
            "lamella.client.write.append",
            "lamella.client.write.upsert",
        ],
        set(),
    ),
    "service": (
        ["lamella.service.app"],
        {"alembic", "fastapi", "jinja2", "pydantic_settings", "sqlalchemy", "structlog", "uvicorn"},
    ),
}


@pytest.mark.parametrize("part", WITHOUT_EXTRAS)
def test_each_part_works_without_the_extras_of_others(part: str) -> None:
    """Somebody who installs the client alone reads, writes and rewrites tables with it."""
    modules, needed = WITHOUT_EXTRAS[part]
    optional = {"alembic", "dask", "deltalake", "duckdb", "fastapi", "httpx2", "jinja2", "pandas", "polars", "psycopg"}
    optional |= {"pydantic_settings", "pyiceberg", "pyspark", "s3fs", "sqlalchemy", "structlog", "uvicorn"}
    program = f"""
import importlib, sys

class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {sorted(optional - needed)!r}:
            raise ModuleNotFoundError(f"no {{name}}", name=name)

sys.meta_path.insert(0, Hidden())
for name in {modules!r}:
    importlib.import_module(name)
"""
    run(sys.executable, "-c", program, cwd=ROOT)


def test_the_locks_name_no_index_and_check_every_hash() -> None:
    """Locked versions come from whatever index the user's machine is set to, and only with a known hash."""
    locks = sorted(ROOT.glob("requirements*.lock"))
    written = re.findall(r"-o (requirements\S*\.lock)", (ROOT / "Makefile").read_text(encoding="utf-8"))
    assert [lock.name for lock in locks] == sorted(written)
    for lock in locks:
        text = lock.read_text(encoding="utf-8")
        assert re.findall(r"://|index-url|find-links", text) == []
        pins = re.split(r"^(?=[a-z0-9])", text, flags=re.MULTILINE)[1:]
        assert [pin.splitlines()[0] for pin in pins if "--hash=sha256:" not in pin] == []


def test_every_declared_dependency_is_locked() -> None:
    """A requirement added to pyproject.toml without `make lock` is noticed."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        project = tomllib.load(file)
    groups = [project["project"]["dependencies"], project["dependency-groups"]["dev"]]
    groups.extend(project["project"]["optional-dependencies"].values())
    declared = {re.split(r"[\[<>=~! ]", requirement)[0] for group in groups for requirement in group}
    locked = set(re.findall(r"^([a-z0-9-]+)==", (ROOT / "requirements.lock").read_text(encoding="utf-8"), re.MULTILINE))
    assert declared - locked == set()
