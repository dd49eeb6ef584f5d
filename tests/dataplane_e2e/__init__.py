"""A real data plane as a process of its own, real Redis, fake model hosts on real sockets; clients from outside."""
