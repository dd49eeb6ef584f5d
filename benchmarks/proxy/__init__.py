"""What the hop through the proxy costs: the product's worker, nginx and the LLM routers in front of the same hosts."""
