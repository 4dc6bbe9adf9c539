"""Jobs, the schedules and policies that add them, and what workers ask."""
