"""``python -m lamella``: the ``lamella`` command, where its script is not in PATH."""

from lamella.client.cli import main

main()
