"""The one exception that ends a command in plain words."""


class Fault(Exception):
    """The command cannot go on, and its user can do something about it. The message is one plain sentence."""
