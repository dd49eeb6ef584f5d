"""What each operation of the API means: one function each, in the caller's transaction. Nothing here sees HTTP."""
