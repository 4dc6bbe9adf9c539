"""Write the keys and passwords that docker-compose.yml mounts into a folder (`make secrets`: deploy/secrets).

What is there already stays, so running this again changes nothing. The folder is closed to others; the files in it are
not, because a container's user has another number than whoever runs this.
"""

import base64
import secrets
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from lamella.snapshot.tokens import RANDOM_BYTES, key_sha256, key_text

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "deploy" / "secrets"
STORE_USER = "lamella"
CATALOG = "postgresql+psycopg://lamella:{password}@catalog:5432/lamella"


def main(arguments: list[str]) -> int:
    """Write the files; returns the exit status."""
    folder = Path(arguments[0]) if arguments else FOLDER
    for name in make(folder):
        print(f"secrets: made {folder / name}", file=sys.stderr)
    return 0


def make(folder: Path) -> list[str]:
    """Write what is missing; returns its names."""
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)
    made: list[str] = []

    def put(name: str, text: Callable[[], str]) -> str:
        path = folder / name
        if not path.exists():
            path.write_text(text(), encoding="utf-8")
            path.chmod(0o444)
            made.append(name)
        return path.read_text(encoding="utf-8")

    key = put("root_key", lambda: key_text(secrets.token_bytes(RANDOM_BYTES)))
    put("root_key_sha256", lambda: key_sha256(key))
    password = put("catalog_password", _password)
    put("catalog_url", lambda: CATALOG.format(password=password))
    store = put("store_password", _password)
    put("store_credentials", lambda: _ini({"aws_access_key_id": STORE_USER, "aws_secret_access_key": store}))
    put("grafana_password", _password)
    return made


def _password() -> str:
    """Return 160 random bits as text without characters that are special in URLs or shells."""
    return base64.b32encode(secrets.token_bytes(20)).decode().lower()


def _ini(values: Mapping[str, str]) -> str:
    return "\n".join(["[default]", *(f"{name} = {value}" for name, value in values.items()), ""])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
