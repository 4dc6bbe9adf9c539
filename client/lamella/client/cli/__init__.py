"""The ``lamella`` command. Every command and option is described in ``docs/cli.md``; a test holds the two together."""


def main() -> None:
    """The console script. Exit status: 0 done, 1 refused or failed, 2 wrong usage."""
    from lamella.client.cli.app import cli

    cli.main(prog_name="lamella")
