"""Files that arrived: event notifications of S3, and lists of new files."""
