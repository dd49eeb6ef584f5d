"""A real engine behind real workers: llama.cpp's server on the CPU, its prompt cache and its count of cached tokens."""
