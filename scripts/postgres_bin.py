"""Print the folder that holds PostgreSQL's server programs; with `--install`, bring them when they are missing.

The tests start a private server of their own on a temporary data directory, so they need `initdb`, `pg_ctl` and
`postgres`, which Debian keeps off PATH. Looked at in this order: PATH, then /usr/lib/postgresql/*/bin, newest first.
`--install` uses apt-get, when this runs as root and there is one, and takes care that Debian's package does not create
and start a server of its own.

Only the path goes to standard output. The exit status is 1 when the programs are not there.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

PROGRAMS = ("initdb", "pg_ctl", "postgres")
DEBIAN_FOLDER = Path("/usr/lib/postgresql")
DEBIAN_SETTINGS = Path("/etc/postgresql-common/createcluster.conf")


def main(arguments: list[str]) -> int:
    """Print the path; returns the exit status."""
    folder = find()
    if folder is None and "--install" in arguments:
        install()
        folder = find()
    if folder is None:
        say(f"error: the PostgreSQL server programs ({', '.join(PROGRAMS)}) are missing: install the Debian package")
        say("postgresql (apt-get install postgresql, as root), or put them on PATH")
        return 1
    print(folder)
    return 0


def find() -> Path | None:
    """Return the first folder that contains all the programs."""
    folders: list[Path] = []
    on_path = shutil.which("postgres")
    if on_path:
        folders.append(Path(on_path).resolve().parent)
    versions = [folder for folder in DEBIAN_FOLDER.glob("*/bin") if folder.parent.name.isdigit()]
    folders.extend(sorted(versions, key=lambda folder: int(folder.parent.name), reverse=True))
    return next((f for f in folders if all(os.access(f / program, os.X_OK) for program in PROGRAMS)), None)


def install() -> None:
    """Install Debian's package without a server of its own; does nothing where that is not possible."""
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        return
    say("installing the Debian package postgresql")
    apt_get("update")
    apt_get("install", "-y", "--no-install-recommends", "postgresql-common")
    if not DEBIAN_SETTINGS.exists():
        return
    before = DEBIAN_SETTINGS.read_text(encoding="utf-8")
    without_server = re.sub(r"(?m)^#?\s*create_main_cluster\s*=.*$", "create_main_cluster = false", before)
    DEBIAN_SETTINGS.write_text(without_server, encoding="utf-8")
    try:
        apt_get("install", "-y", "--no-install-recommends", "postgresql")
    finally:
        DEBIAN_SETTINGS.write_text(before, encoding="utf-8")


def apt_get(*arguments: str) -> None:
    """Run apt-get without questions; what it prints goes to standard error."""
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    subprocess.run(["apt-get", "-q", *arguments], check=False, env=environment, stdout=sys.stderr)


def say(message: str) -> None:
    """Print a message to standard error."""
    print(f"postgresql: {message}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
