"""A production trace with its own timestamps: what each strategy and PrefixLength finds, and what a wrong one costs."""
