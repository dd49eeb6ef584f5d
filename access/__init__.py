"""Who a caller is and what it may do, the same for both planes: keys, signatures, bearer tokens, permissions, seals.

No I/O, no clock, no log: bytes and the time come in, a principal or a refusal comes out. Only files.py reads, at start.
"""
