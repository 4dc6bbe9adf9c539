"""Print the path of a Chromium for the dashboard's tests; with `--install`, bring it when it is missing.

Looked for on PATH as `chromium`, `chromium-browser` and `google-chrome`. `--install` uses apt-get, when this runs as
root and there is one, for Debian's package.

Only the path goes to standard output. The exit status is 1 when there is none.
"""

import os
import shutil
import subprocess
import sys

NAMES = ("chromium", "chromium-browser", "google-chrome")


def main(arguments: list[str]) -> int:
    """Print the path; returns the exit status."""
    found = find()
    if found is None and "--install" in arguments:
        install()
        found = find()
    if found is None:
        say(f"error: no browser ({', '.join(NAMES)}): install the Debian package chromium (apt-get install chromium)")
        return 1
    print(found)
    return 0


def find() -> str | None:
    """Return the first of the names that is on PATH."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


def install() -> None:
    """Install Debian's package; does nothing where that is not possible."""
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        return
    say("installing the Debian package chromium")
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    for words in (["update"], ["install", "-y", "--no-install-recommends", "chromium"]):
        subprocess.run(["apt-get", "-q", *words], check=False, env=environment, stdout=sys.stderr)


def say(message: str) -> None:
    """Print a message to standard error."""
    print(f"chromium: {message}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
