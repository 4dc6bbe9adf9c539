"""The methods of the client, by feature."""
