"""What it costs to know a caller, and what one caller's flood costs another."""
