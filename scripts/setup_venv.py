"""Make `.venv` and install Lamella into it: `make setup` runs this with the machine's own Python (3.11 or newer).

Everything comes from `requirements.lock`, with hashes checked. uv does the installing, because it is several times
quicker than pip; it is itself installed from the lock, by pip. Where pip is set to use an index of its own, which
uv would not read, or where uv fails, pip does the whole work. Running this again changes nothing that is in place.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
LOCK = ROOT / "requirements.lock"
OLDEST = (3, 11)


def main() -> int:
    """Bring the environment up to date; returns the exit status."""
    if sys.version_info < OLDEST:
        return fail(f"Python 3.11 or newer is needed, this is {sys.version.split()[0]} ({sys.executable})")
    if not has_pip() and not make_venv():
        return 1
    if not install():
        return fail("the packages of requirements.lock could not be installed; the messages above say why")
    # Finds or installs a Java for Spark, so that no later step installs anything.
    java = [PYTHON, ROOT / "scripts" / "java_home.py"]
    return subprocess.run(java, check=False, stdout=subprocess.DEVNULL).returncode


def has_pip() -> bool:
    """Whether `.venv` exists, its Python starts and it has pip."""
    return PYTHON.exists() and succeeds([PYTHON, "-m", "pip", "--version"], quiet=True)


def make_venv() -> bool:
    """Create `.venv`, or create it afresh when it is broken."""
    say(f"creating {VENV.name} with Python {sys.version.split()[0]}")
    command: list[str | Path] = [sys.executable, "-m", "venv", "--clear", VENV]
    if succeeds(command):
        return True
    # Debian and Ubuntu keep a part of the standard library, ensurepip, in a package of its own.
    package = f"python{sys.version_info.major}.{sys.version_info.minor}-venv"
    if os.geteuid() == 0 and shutil.which("apt-get"):
        say(f"installing the Debian package {package}")
        environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
        subprocess.run(["apt-get", "update"], check=False)
        subprocess.run(["apt-get", "install", "-y", "--no-install-recommends", package], check=False, env=environment)
        if succeeds(command):
            return True
    fail(f"`{sys.executable} -m venv` does not work here; on Debian and Ubuntu: apt-get install {package}")
    return False


def install() -> bool:
    """Install the locked packages, then Lamella itself as an editable install."""
    pip: list[str | Path] = [PYTHON, "-m", "pip", "--disable-pip-version-check", "install"]
    if pip_has_own_index():
        say("pip is set to use an index of its own: installing with pip")
    elif install_uv(pip):
        uv: list[str | Path] = [VENV / "bin" / "uv", "pip", "install", "--python", PYTHON]
        if install_with(uv):
            return True
        say("uv did not succeed: trying pip")
    return install_with(pip)


def install_with(installer: list[str | Path]) -> bool:
    """Run both steps with one installer, pip or uv; they take the same options."""
    # hatchling is in the lock, so the editable install needs no build environment and no network.
    editable: list[str | Path] = ["--no-deps", "--no-build-isolation", "-e", ROOT]
    return succeeds([*installer, "--require-hashes", "-r", LOCK]) and succeeds([*installer, *editable])


def install_uv(pip: list[str | Path]) -> bool:
    """Install the one locked uv with pip, hashes checked."""
    with tempfile.TemporaryDirectory() as folder:
        requirement = Path(folder) / "uv.lock"
        requirement.write_text(locked("uv"), encoding="utf-8")
        return succeeds([*pip, "--quiet", "--require-hashes", "--no-deps", "-r", requirement])


def locked(name: str) -> str:
    """The lines of requirements.lock that pin one package."""
    pins: list[str] = []
    for line in LOCK.read_text(encoding="utf-8").splitlines():
        if line.startswith(f"{name}==") or (pins and line.startswith("    --hash=")):
            pins.append(line)
        elif pins:
            break
    return "\n".join(pins) + "\n"


def pip_has_own_index() -> bool:
    """Whether pip's configuration (files and environment) names an index other than its default."""
    listing = subprocess.run([PYTHON, "-m", "pip", "config", "list"], check=False, capture_output=True, text=True)
    names = [line.split("=")[0] for line in listing.stdout.splitlines()]
    return any("index-url" in name or "no-index" in name for name in names)


def succeeds(command: list[str | Path], *, quiet: bool = False) -> bool:
    """Run a command to its end; True when its exit status is 0."""
    output = subprocess.DEVNULL if quiet else None
    # Like pip, uv should trust what the machine trusts, not only the certificates that it carries.
    environment = {"UV_SYSTEM_CERTS": "true"} | os.environ
    done = subprocess.run(command, check=False, cwd=ROOT, stdout=output, stderr=output, env=environment)
    return done.returncode == 0


def say(message: str) -> None:
    """Print a message about the current step."""
    print(f"setup: {message}", file=sys.stderr, flush=True)


def fail(message: str) -> int:
    """Print an error; returns the exit status for it."""
    say(f"error: {message}")
    return 1


if __name__ == "__main__":
    sys.exit(main())
