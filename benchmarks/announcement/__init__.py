"""The benchmark of the announcement of prefix-aware routing, in virtual time: its table, theirs beside ours."""
