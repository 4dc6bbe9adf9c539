"""Make a release by one command: `make release VERSION=1.2.3`, with ARGS=--dry-run up to the commit and the tag.

It works in a worktree of its own, so that a failure leaves the branch and its files as they were:

1. the version is written wherever it stands, and CHANGELOG.md's unreleased part becomes the version's;
2. a wheel is built; with it the generated pages are written, and the file that later releases are tested to take over
   (`tests/upgrade/VERSION.zip`);
3. the sdist and the wheel are built from all that. The second wheel must have the bytes of the first;
4. `twine check --strict`, the bills of materials, the context of the images, checksums;
5. tests of packaging and of upgrades, over the wheel;
6. one commit on main, an annotated tag `vVERSION`, and the files in build/release.

To get the same packages from the tag: SOURCE_DATE_EPOCH=$(git log -1 --format=%ct vVERSION) python -m build
"""

from __future__ import annotations

import argparse
import datetime as dt
import os
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from releasing.artefacts import build, run, sha256, write_checksums, write_context
from releasing.edits import Refused, changelog, check_version, project, set_version

ROOT: Final = Path(__file__).resolve().parent.parent
BRANCH: Final = "main"
#: PostgreSQL may be missing here; `make test` ran these tests with it before.
TESTS: Final[tuple[str, ...]] = ("-m", "not soak and not postgres", "-q")


def main(arguments: list[str]) -> int:
    """Run the command; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("version")
    parser.add_argument("--dry-run", action="store_true", help="make no commit and no tag")
    given = parser.parse_args(arguments)
    # The time of the release; another one can be given, as to other reproducible builds.
    epoch_s = int(os.environ.get("SOURCE_DATE_EPOCH", time.time()))
    try:
        check(ROOT, given.version, dry_run=given.dry_run)
        release(ROOT, given.version, epoch_s=epoch_s, dry_run=given.dry_run)
    except Refused as error:
        print(f"release: error: {error}", file=sys.stderr)
        return 1
    return 0


def check(root: Path, version: str, *, dry_run: bool) -> None:
    """Raise Refused if the checkout or the version does not allow a release."""
    before = project(root)
    check_version(version, before["version"])
    branch = run(["git", "branch", "--show-current"], cwd=root).strip()
    if branch != BRANCH:
        raise Refused(f"a release is made on {BRANCH}, this is {branch or 'no branch'}")
    changed = run(["git", "status", "--porcelain"], cwd=root)
    if changed:
        raise Refused(f"files are changed, or not committed:\n{changed}")
    if run(["git", "tag", "--list", f"v{version}"], cwd=root):
        raise Refused(f"the tag v{version} exists")
    if (root / "tests/upgrade" / f"{version}.zip").exists():
        raise Refused(f"tests/upgrade/{version}.zip exists")
    if not before["url"]:
        text = "[tool.lamella.home] in pyproject.toml names no url, so packages would have no addresses"
        if not dry_run:
            raise Refused(text)
        say(f"warning: {text}")


def release(root: Path, version: str, *, epoch_s: int, dry_run: bool) -> None:
    """Make the release. Raises Refused if a step fails; the checkout is as before then."""
    with tempfile.TemporaryDirectory() as folder, worktree(root, Path(folder) / "tree") as tree:
        made = Path(folder) / "release"
        made.mkdir()
        edit(tree, version, epoch_s=epoch_s)
        unpacked = write_generated(tree, Path(folder), version, epoch_s=epoch_s)
        write_files(tree, made, version, epoch_s=epoch_s)
        (first,) = (Path(folder) / "first").glob("*.whl")
        if sha256(first) != sha256(made / first.name):
            raise Refused("two builds of the wheel differ")
        write_checksums(made)
        say("running the tests of packaging and of upgrades")
        pytest: list[str | Path] = [sys.executable, "-m", "pytest", *TESTS]
        run([*pytest, "tests/upgrade"], cwd=tree, PYTHONPATH=str(unpacked))
        # Without the path: pip would take the unpacked wheel for an installed one.
        run([*pytest, "tests/test_packaging.py"], cwd=tree)
        # A test that wrote into the tree would be part of the release.
        commit = None if dry_run else commit_tree(tree, version, epoch_s=epoch_s)
        target = root / "build" / "release"
        if commit is not None:
            tag_and_merge(root, commit, version)
        shutil.rmtree(target, ignore_errors=True)
        target.parent.mkdir(exist_ok=True)
        shutil.copytree(made, target)
    say(f"{target}: {', '.join(sorted(path.name for path in target.iterdir()))}")
    say(
        "dry run: no commit, no tag"
        if dry_run
        else f"v{version} is {commit}; next: git push --follow-tags, make publish"
    )


@contextmanager
def worktree(root: Path, path: Path) -> Iterator[Path]:
    """Yield a worktree of HEAD, without a branch, which is removed in the end."""
    run(["git", "worktree", "add", "--quiet", "--detach", path], cwd=root)
    try:
        yield path
    finally:
        subprocess.run(["git", "worktree", "remove", "--force", path], check=False, cwd=root)


def edit(tree: Path, version: str, *, epoch_s: int) -> None:
    """Write the version and the changelog."""
    before = project(tree)
    say(f"{before['version']} becomes {version}")
    set_version(tree, before["version"], version)
    path = tree / "CHANGELOG.md"
    day = dt.datetime.fromtimestamp(epoch_s, dt.UTC).date()
    path.write_text(changelog(path.read_text("utf-8"), version, day, before), "utf-8")


def write_generated(tree: Path, folder: Path, version: str, *, epoch_s: int) -> Path:
    """Write what the release itself makes: pages, and its file for later releases; returns the unpacked wheel."""
    say("building the wheel that writes the pages and the file for later releases")
    wheel = build(tree, folder / "first", epoch_s=epoch_s)
    unpacked = folder / "unpacked"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(unpacked)
    python = sys.executable
    run([python, "scripts/write_reference.py"], cwd=tree, PYTHONPATH=str(unpacked))
    fixture = f"tests/upgrade/{version}.zip"
    run([python, "scripts/upgrade_fixture.py", fixture], cwd=tree, PYTHONPATH=str(unpacked))
    run(["git", "add", "--all"], cwd=tree)
    return unpacked


def write_files(tree: Path, made: Path, version: str, *, epoch_s: int) -> None:
    """Write all files of the release but the checksums."""
    say("building the packages, the bills of materials and the context of the images")
    wheel = build(tree, made, epoch_s=epoch_s)
    run([sys.executable, "-m", "twine", "check", "--strict", *made.iterdir()], cwd=tree)
    if f"lamella-{version}-" not in wheel.name:
        raise Refused(f"the wheel is {wheel.name}")
    run([sys.executable, "scripts/sbom.py", made], cwd=tree)
    write_context(tree, version, made, epoch_s=epoch_s)


def commit_tree(tree: Path, version: str, *, epoch_s: int) -> str:
    """Commit what is staged, at the time of the release; returns the commit's id."""
    unstaged = run(["git", "diff", "--name-only"], cwd=tree) + run(
        ["git", "ls-files", "--others", "--exclude-standard"], cwd=tree
    )
    if unstaged:
        raise Refused(f"the tests changed files:\n{unstaged}")
    date = f"@{epoch_s} +0000"
    command: list[str | Path] = ["git", "commit", "--quiet", "--no-verify", "-m", f"Release {version}"]
    run(command, cwd=tree, GIT_AUTHOR_DATE=date, GIT_COMMITTER_DATE=date)
    return run(["git", "rev-parse", "HEAD"], cwd=tree).strip()


def tag_and_merge(root: Path, commit: str, version: str) -> None:
    """Tag the commit and put the branch on it. Raises Refused, with neither done, if the branch has moved meanwhile."""
    tag = f"v{version}"
    run(["git", "tag", "--annotate", "-m", f"Lamella {version}", tag, commit], cwd=root)
    try:
        run(["git", "merge", "--quiet", "--ff-only", commit], cwd=root)
    except Refused:
        run(["git", "tag", "--delete", tag], cwd=root)
        raise


def say(text: str) -> None:
    """Print a message about the current step."""
    print(f"release: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
