"""What others rely on: the settings, the routing table that crosses between the planes, and the Redis names.

Nothing else may live here. No I/O; imports limited to msgspec and the standard library.
"""
