"""Upload the release that HEAD is tagged as (`make publish`). ARGS goes to `twine upload`: --repository testpypi.

Refused unless the files in build/release are those that `make release` made for the tag on HEAD, whole, and with the
addresses of the project's home. Only the sdist and the wheel go to the package index.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

from releasing.artefacts import CHECKSUMS, check_checksums, metadata_of, run
from releasing.edits import Refused, project

ROOT: Final = Path(__file__).resolve().parent.parent


def main(arguments: list[str]) -> int:
    """Run the command; returns the exit status, that of twine once it was started."""
    try:
        packages = publishable(ROOT)
    except Refused as error:
        print(f"publish: error: {error}", file=sys.stderr)
        return 1
    command: list[str | Path] = [sys.executable, "-m", "twine", "upload", *arguments, *packages]
    return subprocess.run(command, check=False, cwd=ROOT).returncode


def publishable(root: Path) -> list[Path]:
    """Return the packages to upload; raises Refused if this checkout is not a release that may be published."""
    settings = project(root)
    version = settings["version"]
    if not settings["url"]:
        raise Refused("[tool.lamella.home] in pyproject.toml names no url")
    tags = run(["git", "tag", "--points-at", "HEAD"], cwd=root).split()
    if f"v{version}" not in tags:
        raise Refused(f"HEAD does not have the tag v{version}; `make release` makes it")
    if run(["git", "cat-file", "-t", f"v{version}"], cwd=root).strip() != "tag":
        raise Refused(f"the tag v{version} is not annotated")
    if run(["git", "status", "--porcelain"], cwd=root):
        raise Refused("files are changed, or not committed")
    folder = root / "build" / "release"
    if not (folder / CHECKSUMS).exists():
        raise Refused(f"{folder} has no release; check out the commit before the tag and run `make release`")
    names = check_checksums(folder)
    packages = [folder / name for name in (f"lamella-{version}-py3-none-any.whl", f"lamella-{version}.tar.gz")]
    if any(path.name not in names for path in packages):
        raise Refused(f"{folder} is of another version")
    if not metadata_of(packages[0]).get_all("Project-URL"):
        raise Refused(f"{packages[0].name} has no addresses: it was made before the home was set")
    run([sys.executable, "-m", "twine", "check", "--strict", *packages], cwd=root)
    return packages


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
