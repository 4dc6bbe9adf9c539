"""A service under a steady load: requests that come at a fixed rate, whether the ones before were answered or not."""
