"""Bytes and sockets. No opinion about where a request goes."""
