"""The command line, ``warmroute up``, and the launcher of embedded Postgres and Valkey."""
