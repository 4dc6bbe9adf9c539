# Written by scripts/write_sync_client.py from client/lamella/client/http/aio/__init__.py: change that file.
"""The methods of the client, by feature."""
