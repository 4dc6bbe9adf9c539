"""`make release` and `make publish`: what they change in the sources, and when they refuse."""

from __future__ import annotations

import datetime as dt
import hashlib
import platform
import re
import shutil
import subprocess
import tomllib
import zipfile
from pathlib import Path

import pytest

import matrix
import publish
import release
from releasing.artefacts import check_checksums, run, write_checksums, write_context
from releasing.edits import POSITIONS, Refused, changelog, check_version, project, set_version

ROOT = Path(__file__).resolve().parents[2]
HOME = {
    "url": "https://host.example/owner/lamella",
    "tag": "{url}/releases/tag/v{version}",
    "changes": "{url}/compare/v{version}...HEAD",
}
NO_HOME = HOME | {"url": ""}
DAY = dt.date(2026, 11, 28)
VERSION = project(ROOT)["version"]
#: Pages that say with which version figures were measured, and files in which the digits mean something else.
OTHERS = re.compile(r"docs/(performance|sharpness|decisions|conformance)|\.lock$|CHANGELOG\.md|docs/openapi\.json")


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The files that name the version, and what a release reads, as a repository on main."""
    for path in (*POSITIONS, "CHANGELOG.md", "deploy/Dockerfile.dockerignore"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / path, tmp_path / path)
    (tmp_path / ".gitignore").write_text("/build/\n")
    for words in (
        ["init", "--quiet", "--initial-branch", "main"],
        ["config", "user.name", "a"],
        ["config", "user.email", "a@host.example"],
    ):
        run(["git", *words], cwd=tmp_path)
    commit(tmp_path)
    return tmp_path


def commit(root: Path) -> None:
    """Commit all files."""
    run(["git", "add", "--all"], cwd=root)
    run(["git", "commit", "--quiet", "--allow-empty", "-m", "a"], cwd=root)


def set_home(root: Path) -> None:
    """Name a home in pyproject.toml."""
    path = root / "pyproject.toml"
    path.write_text(re.sub(r'^url = ".*?"', f'url = "{HOME["url"]}"', path.read_text(), flags=re.MULTILINE))


def test_every_position_gets_the_version_and_nothing_else_does(copy: Path) -> None:
    """Going back gives the same bytes, so no other number was taken for the version."""
    before = {path: (copy / path).read_bytes() for path in POSITIONS}
    set_version(copy, VERSION, "97.98.99")
    assert project(copy)["version"] == "97.98.99"
    for path in POSITIONS:
        assert b"97.98.99" in (copy / path).read_bytes()
    set_version(copy, "97.98.99", VERSION)
    assert {path: (copy / path).read_bytes() for path in POSITIONS} == before


def test_no_file_names_the_version_that_a_release_would_not_change() -> None:
    """A new file with the name of an image in it must be added to POSITIONS."""
    exact = re.compile(rf"(?:lamella\S{{0,9}}[:= ]|Lamella |version\S{{0,3}}[ :=>]+\"?){re.escape(VERSION)}(?![\d.]\d)")
    listed = run(["git", "grep", "-lF", VERSION], cwd=ROOT).split()
    naming = {path for path in listed if not OTHERS.search(path) and exact.search((ROOT / path).read_text("utf-8"))}
    assert naming - set(POSITIONS) == set()


def test_a_position_that_is_gone_stops_the_release_and_nothing_is_written(copy: Path) -> None:
    """The last file is the one that lacks the version."""
    last = list(POSITIONS)[-1]
    (copy / last).write_text("nothing")
    before = (copy / "pyproject.toml").read_text()
    with pytest.raises(Refused, match=re.escape(last)):
        set_version(copy, VERSION, "97.98.99")
    assert (copy / "pyproject.toml").read_text() == before


@pytest.mark.parametrize(
    "version", ["1.2.3", "1.2.2", "0.9.9", "1.2.3rc1", "1.3", "1.3.0.1", "v1.3.0", "x", "1.3.0.dev1"]
)
def test_a_version_is_newer_and_has_three_numbers(version: str) -> None:
    """Those of these lines are not."""
    with pytest.raises(Refused):
        check_version(version, "1.2.3")
    for newer in ("1.2.4", "1.3.0rc1", "2.0.0", "1.10.0"):
        check_version(newer, "1.2.3")


def test_the_unreleased_part_becomes_the_section_of_the_version() -> None:
    """With the day, and above it an empty unreleased part; links only if there is a home."""
    text = "# Changelog\n\n## [Unreleased]\n\n### Added\n\n- a\n"
    made = changelog(text, "1.2.0", DAY, NO_HOME)
    assert made == "# Changelog\n\n## [Unreleased]\n\n## [1.2.0] - 2026-11-28\n\n### Added\n\n- a\n"
    with pytest.raises(Refused, match="nothing below"):
        changelog(made, "1.3.0", DAY, NO_HOME)
    with pytest.raises(Refused, match="has a section"):
        changelog(made, "1.2.0", DAY, NO_HOME)


def test_the_links_of_the_changelog_name_each_version_once() -> None:
    """The newest first; the unreleased part is compared with the newest."""
    text = "# Changelog\n\n## [Unreleased]\n\n- a\n"
    first = changelog(text, "1.2.0", DAY, HOME)
    second = changelog(first.replace("## [Unreleased]\n", "## [Unreleased]\n\n- b\n"), "1.3.0", DAY, HOME)
    assert second.endswith(
        "- a\n\n[Unreleased]: https://host.example/owner/lamella/compare/v1.3.0...HEAD\n"
        "[1.3.0]: https://host.example/owner/lamella/releases/tag/v1.3.0\n"
        "[1.2.0]: https://host.example/owner/lamella/releases/tag/v1.2.0\n"
    )


def test_the_changelog_of_this_checkout_can_be_released() -> None:
    """Sections are those that `tests/upgrade` looks for."""
    made = changelog((ROOT / "CHANGELOG.md").read_text("utf-8"), "97.98.99", DAY, HOME)
    assert "97.98.99" in re.findall(r"^## \[(\d[^\]]*)\]", made, re.MULTILINE)


def test_a_release_needs_a_clean_main_a_home_and_a_new_tag(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A dry run only warns that there is no home."""
    pyproject = copy / "pyproject.toml"
    pyproject.write_text(re.sub(r'^url = ".*?"', 'url = ""', pyproject.read_text(), flags=re.MULTILINE))
    commit(copy)
    with pytest.raises(Refused, match="names no url"):
        release.check(copy, "97.0.0", dry_run=False)
    release.check(copy, "97.0.0", dry_run=True)
    assert "names no url" in capsys.readouterr().err
    set_home(copy)
    with pytest.raises(Refused, match=r"not committed:\n M pyproject\.toml"):
        release.check(copy, "97.0.0", dry_run=False)
    commit(copy)
    release.check(copy, "97.0.0", dry_run=False)
    run(["git", "tag", "v97.0.0"], cwd=copy)
    with pytest.raises(Refused, match=r"the tag v97\.0\.0 exists"):
        release.check(copy, "97.0.0", dry_run=False)
    run(["git", "switch", "--quiet", "-c", "other"], cwd=copy)
    with pytest.raises(Refused, match="made on main, this is other"):
        release.check(copy, "98.0.0", dry_run=False)


def test_a_step_that_fails_leaves_the_checkout_as_it_was(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No changed file, no commit, no tag and no worktree is left."""

    def fail(*_: object, **__: object) -> Path:
        raise Refused("it cannot be built")

    monkeypatch.setattr(release, "build", fail)
    before = run(["git", "rev-parse", "HEAD"], cwd=copy)
    with pytest.raises(Refused, match="it cannot be built"):
        release.release(copy, "97.0.0", epoch_s=1_800_000_000, dry_run=False)
    assert run(["git", "rev-parse", "HEAD"], cwd=copy) == before
    assert run(["git", "status", "--porcelain"], cwd=copy) == run(["git", "tag"], cwd=copy) == ""
    assert len(run(["git", "worktree", "list"], cwd=copy).splitlines()) == 1


def test_a_branch_that_moved_meanwhile_gets_no_tag(copy: Path) -> None:
    """The commit of the release is beside it."""
    old = run(["git", "rev-parse", "HEAD"], cwd=copy).strip()
    run(["git", "checkout", "--quiet", "--detach"], cwd=copy)
    commit(copy)
    made = run(["git", "rev-parse", "HEAD"], cwd=copy).strip()
    run(["git", "checkout", "--quiet", "main"], cwd=copy)
    run(["git", "commit", "--quiet", "--allow-empty", "-m", "b"], cwd=copy)
    with pytest.raises(Refused):
        release.tag_and_merge(copy, made, "97.0.0")
    assert run(["git", "tag"], cwd=copy) == ""
    run(["git", "reset", "--quiet", "--hard", old], cwd=copy)
    release.tag_and_merge(copy, made, "97.0.0")
    assert run(["git", "rev-parse", "HEAD", "v97.0.0^{commit}"], cwd=copy).split() == [made, made]


def test_the_context_of_the_images_has_all_that_is_copied(tmp_path: Path, copy: Path) -> None:
    """Twice the same bytes, from the files of this checkout; a file that is missing is named."""
    archives = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        archives.append(write_context(ROOT, "1.2.0", tmp_path / name, epoch_s=1_800_000_000).read_bytes())
    assert archives[0] == archives[1]
    with pytest.raises(Refused, match=r"deploy/Dockerfile copies requirements-build\.lock"):
        write_context(copy, "1.2.0", tmp_path, epoch_s=0)


def test_checksums_notice_each_change_of_a_file(tmp_path: Path) -> None:
    """They are what sha256sum reads."""
    (tmp_path / "a").write_bytes(b"1")
    (tmp_path / "b").write_bytes(b"2")
    write_checksums(tmp_path)
    assert check_checksums(tmp_path) == ["a", "b"]
    run(["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=tmp_path)
    for name, data in (("a", b"x"), ("c", b"3")):
        before = (tmp_path / name).read_bytes() if name == "a" else None
        (tmp_path / name).write_bytes(data)
        with pytest.raises(Refused, match=f": {name}$"):
            check_checksums(tmp_path)
        if before is not None:
            (tmp_path / name).write_bytes(before)


def test_publishing_needs_a_home_the_tag_on_head_and_the_files(copy: Path) -> None:
    """In this order each lack is said; with a light tag it is refused too."""
    pyproject = copy / "pyproject.toml"
    pyproject.write_text(re.sub(r'^url = ".*?"', 'url = ""', pyproject.read_text(), flags=re.MULTILINE))
    with pytest.raises(Refused, match="names no url"):
        publish.publishable(copy)
    set_home(copy)
    commit(copy)
    with pytest.raises(Refused, match=f"HEAD does not have the tag v{VERSION}"):
        publish.publishable(copy)
    run(["git", "tag", f"v{VERSION}"], cwd=copy)
    with pytest.raises(Refused, match="not annotated"):
        publish.publishable(copy)
    run(["git", "tag", "--force", "--annotate", "-m", "a", f"v{VERSION}"], cwd=copy)
    with pytest.raises(Refused, match="has no release"):
        publish.publishable(copy)
    (copy / "build/release").mkdir(parents=True)
    write_checksums(copy / "build/release")
    with pytest.raises(Refused, match="of another version"):
        publish.publishable(copy)
    run(["git", "commit", "--quiet", "--allow-empty", "-m", "b"], cwd=copy)
    with pytest.raises(Refused, match="HEAD does not have the tag"):
        publish.publishable(copy)


def test_the_matrix_has_every_python_that_the_package_names() -> None:
    """And the oldest one with the oldest packages; its areas are folders of tests. It may try newer ones."""
    classifiers = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["classifiers"]
    named = re.findall(r"Python :: (3\.\d+)", " ".join(classifiers))
    pythons = [line.python for line in matrix.LINES if not line.is_lowest]
    assert pythons[: len(named)] == named
    assert [line.python for line in matrix.LINES if line.is_lowest] == [named[0]]
    assert [area for area in matrix.AREAS if not any((ROOT / "tests" / area).glob("test_*.py"))] == []


@pytest.mark.parametrize("is_pinned", [True, False])
def test_a_python_of_an_archive_is_unpacked_once_if_it_is_the_pinned_one(
    is_pinned: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It can be run, other bytes are never unpacked, and a second run does not download it again."""
    monkeypatch.setattr(matrix, "ROOT", tmp_path)
    monkeypatch.setattr(platform, "system", lambda: "Linux")
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    packed = tmp_path / "python.jar"
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("home/bin/python3.14", "#!/bin/sh\necho it runs\n")
    digest = hashlib.sha256(packed.read_bytes() if is_pinned else b"others").hexdigest()
    pinned = matrix.Archive(packed.as_uri(), digest, "home")
    python = matrix.unpack(pinned, "3.14")
    if not is_pinned:
        assert python is None
        assert "has the SHA-256" in capsys.readouterr().err
        assert not (tmp_path / "build").exists()
        return
    assert python is not None
    assert subprocess.run([python], check=True, capture_output=True, text=True).stdout == "it runs\n"
    packed.unlink()
    assert matrix.unpack(pinned, "3.14") == python
    assert matrix.unpack(pinned._replace(sha256="0" * 64), "3.14") is None
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    assert matrix.unpack(pinned, "3.14") is None


@pytest.mark.parametrize(
    ("ends", "status"),
    [
        (["passed"] * 5, 0),
        (["passed", "not run: no Python 3.12", *["passed"] * 3], 2),
        (["failed", *["passed"] * 4], 1),
    ],
)
def test_the_matrix_says_what_failed_and_what_did_not_run(
    ends: list[str], status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A line that did not run is no success."""
    results = iter(ends)
    monkeypatch.setattr(matrix, "run_line", lambda *_, **__: next(results))
    assert matrix.main(["--wheel", str(tmp_path / "a.whl")]) == status


@pytest.mark.soak
def test_a_release_is_made_to_its_end(tmp_path: Path) -> None:
    """In a clone of this checkout: commit, tag, files, the file for later releases; `make publish` would upload."""
    clone = tmp_path / "clone"
    run(["git", "clone", "--quiet", ROOT, clone], cwd=tmp_path)
    for words in (
        ["switch", "--quiet", "--force-create", "main"],
        ["config", "user.name", "a"],
        ["config", "user.email", "a@host.example"],
    ):
        run(["git", *words], cwd=clone)
    set_home(clone)
    commit(clone)
    release.check(clone, "97.0.0", dry_run=False)
    release.release(clone, "97.0.0", epoch_s=1_800_000_000, dry_run=False)
    assert tomllib.loads((clone / "pyproject.toml").read_text())["project"]["version"] == "97.0.0"
    assert (clone / "tests/upgrade/97.0.0.zip").exists()
    assert run(["git", "log", "-1", "--format=%s %ct", "v97.0.0"], cwd=clone) == "Release 97.0.0 1800000000\n"
    assert [path.suffix for path in publish.publishable(clone)] == [".whl", ".gz"]
    done = subprocess.run(["git", "status", "--porcelain"], check=True, cwd=clone, capture_output=True)
    assert done.stdout == b""
