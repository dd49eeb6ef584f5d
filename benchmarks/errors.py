"""What ends a part with a sentence instead of a traceback."""


class BenchmarkError(Exception):
    """A measurement cannot be made; the message says of what and why."""


class InputMissing(BenchmarkError):
    """A file that is not part of the repository is not there: a failure only where its part is asked for by name."""
