"""Tables and queries. Raises the errors of the API; knows no rules."""
