"""``python -m lamella.client.cli``: runs the command without the installed script, as the demo does for its service."""

from lamella.client.cli import main

main()
