"""A fleet of 7 hosts that gets an 8th, and one of 8 that loses one, under load: what moves, what it costs."""
