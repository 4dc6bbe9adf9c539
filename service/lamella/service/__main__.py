"""``python -m lamella.service``: serve with the settings of the ``LAMELLA_*`` environment variables."""

from __future__ import annotations

import sys

from pydantic import ValidationError

from lamella.service.app import serve
from lamella.service.settings import ENV_PREFIX, Settings
from lamella.snapshot.errors import LamellaError


def main() -> int:
    """Exit status 2: the settings cannot be used; 1: the service could not start."""
    try:
        settings = Settings()  # type: ignore[call-arg]  # what it needs comes from the environment
    except ValidationError as error:
        for found in error.errors():
            name = ENV_PREFIX + "_".join(str(part) for part in found["loc"]).upper()
            print(f"{name}: {found['msg']}", file=sys.stderr)
        return 2
    try:
        serve(settings)
    except LamellaError as error:
        print(error.message, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
