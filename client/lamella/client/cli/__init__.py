"""The ``lamella`` command. ``docs/cli.md`` describes every command and option; a test compares the two."""

import gc


def main() -> None:
    """Run the console script. Exit status: 0 success, 1 refused or failed, 2 wrong usage, 130 interrupted."""
    gc.disable()  # loading makes no garbage, and the collector would take a fifth of the time
    from lamella.client.cli.app import cli

    gc.enable()
    cli.main(prog_name="lamella")
