"""The LLM routers that install as wheels, and the product, in front of the same real engine hosts."""
