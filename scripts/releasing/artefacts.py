"""The files of a release: packages, the context of the images, and checksums. The same tree gives the same bytes."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import re
import subprocess
import sys
import tarfile
import zipfile
from email import message_from_string
from email.message import Message
from pathlib import Path
from typing import Final

from releasing.edits import Refused

#: What `sha256sum --check` reads.
CHECKSUMS: Final = "SHA256SUMS"


def run(command: list[str | Path], *, cwd: Path, **environment: str) -> str:
    """Return what a command printed to stdout; raises Refused with its output if it fails."""
    done = subprocess.run(command, check=False, cwd=cwd, capture_output=True, text=True, env=os.environ | environment)
    if done.returncode != 0:
        raise Refused(f"{' '.join(map(str, command))}: exit status {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def build(tree: Path, folder: Path, *, epoch_s: int) -> Path:
    """Build the sdist, and the wheel from it, into ``folder``; returns the wheel's path."""
    command: list[str | Path] = [sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, tree]
    run(command, cwd=tree, SOURCE_DATE_EPOCH=str(epoch_s))
    (wheel,) = folder.glob("*.whl")
    return wheel


def metadata_of(wheel: Path) -> Message:
    """Return the METADATA of a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (each for each in archive.namelist() if each.endswith(".dist-info/METADATA"))
        return message_from_string(archive.read(name).decode())


def write_context(tree: Path, version: str, folder: Path, *, epoch_s: int) -> Path:
    """Write what the images are built from as one archive: ``docker build -f deploy/Dockerfile - < FILE``.

    Raises:
        Refused: the Dockerfile copies what the archive lacks.
    """
    ignore = (tree / "deploy/Dockerfile.dockerignore").read_text("utf-8").splitlines()
    sent = ["deploy/Dockerfile", *(line[1:] for line in ignore if line.startswith("!"))]
    names = sorted(set(run(["git", "ls-files", "-z", "--", *sent], cwd=tree).split("\0")) - {""})
    copies = re.findall(r"^COPY (?!--from)(.+) \S+$", (tree / "deploy/Dockerfile").read_text("utf-8"), re.MULTILINE)
    for source in (source for copy in copies for source in copy.split()):
        if not any(name == source or name.startswith(f"{source}/") for name in names):
            raise Refused(f"deploy/Dockerfile copies {source}, which the context of the images lacks")
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name in names:
            entry = tarfile.TarInfo(name)
            data = (tree / name).read_bytes()
            entry.size, entry.mtime = len(data), epoch_s
            entry.mode = 0o755 if os.access(tree / name, os.X_OK) else 0o644
            archive.addfile(entry, io.BytesIO(data))
    path = folder / f"lamella-{version}-image-context.tar.gz"
    path.write_bytes(gzip.compress(packed.getvalue(), mtime=epoch_s))
    return path


def write_checksums(folder: Path) -> None:
    """Write the SHA-256 of every file of the folder."""
    lines = [f"{sha256(path)}  {path.name}\n" for path in sorted(folder.iterdir()) if path.name != CHECKSUMS]
    (folder / CHECKSUMS).write_text("".join(lines), "utf-8")


def check_checksums(folder: Path) -> list[str]:
    """Return the names of the files that the checksums list; raises Refused if a file is missing, changed or extra."""
    lines = (folder / CHECKSUMS).read_text("utf-8").splitlines()
    listed = {name: digest for digest, name in (line.split("  ", 1) for line in lines)}
    found = {path.name: sha256(path) for path in folder.iterdir() if path.name != CHECKSUMS}
    if listed != found:
        wrong = sorted(name for name, _ in listed.items() ^ found.items())
        raise Refused(f"{folder}: not as {CHECKSUMS} says: {', '.join(dict.fromkeys(wrong))}")
    return sorted(listed)


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal."""
    return hashlib.sha256(path.read_bytes()).hexdigest()
