"""The process: its start and end, the workers it forks, its threads and deadlines, and how it is."""
