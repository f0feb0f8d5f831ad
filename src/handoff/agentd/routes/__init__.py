"""The HTTP API, by subject. Each module has a function ``routes(machine)``."""
