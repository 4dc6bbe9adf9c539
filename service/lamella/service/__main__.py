"""``python -m lamella.service``: serve with the settings of the environment and the files that it names."""

from __future__ import annotations

import gc
import sys


def main() -> int:
    """Run the service. Exit status 2: invalid settings; 1: the service could not start."""
    # Loading makes no garbage, and the collector would take a quarter of the time; the app enables it (``served``).
    gc.disable()
    try:
        return _run()
    finally:
        gc.enable()


def _run() -> int:
    # Not imported above: each worker process loads this module first, and must soon answer pings.
    from lamella.service.config.sources import load_settings
    from lamella.service.process.server import serve
    from lamella.snapshot.errors import InvalidSettings, LamellaError

    try:
        settings = load_settings().settings
    except InvalidSettings as error:
        for problem in error.details["problems"]:
            print(problem, file=sys.stderr)
        return 2
    try:
        serve(settings)
    except LamellaError as error:
        print(error.message, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
