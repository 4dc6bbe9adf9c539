"""Runs the services of docker-compose.yml as local processes: the same commands, order and health checks."""
