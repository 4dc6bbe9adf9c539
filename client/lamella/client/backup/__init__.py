"""Export, import and verification of the service's catalog, as commands. It can be taken out."""
