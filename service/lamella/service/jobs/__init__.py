"""Jobs, the schedules and policies that add them, and the requests of workers."""
