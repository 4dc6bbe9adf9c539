"""The programs of docker-compose.yml as processes of this machine: same commands, same order, same health checks."""
