"""What it costs to choose and count a request: CPU of the worker and of Redis, and calls, against a real Valkey."""
