"""The ``lamella`` command. ``docs/cli.md`` describes every command and option; a test compares the two."""


def main() -> None:
    """Run the console script. Exit status: 0 success, 1 refused or failed, 2 wrong usage."""
    from lamella.client.cli.app import cli

    cli.main(prog_name="lamella")
