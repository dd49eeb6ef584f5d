"""What parts in virtual time have in common: simulated hosts with their counts, and the strategies."""
