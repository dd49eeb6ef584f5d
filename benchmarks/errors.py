"""What ends a part with a sentence instead of a traceback."""


class BenchmarkError(Exception):
    """A measurement cannot be made; the message says of what and why."""
