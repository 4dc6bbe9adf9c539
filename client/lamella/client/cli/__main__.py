"""``python -m lamella.client.cli``: the command without its script, as the demo starts its service."""

from lamella.client.cli import main

main()
