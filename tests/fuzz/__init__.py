"""Fuzzing of what strangers can reach; ``python -m tests.fuzz --help``."""
