"""Pure decisions: no await, clock, Redis, randomness or logger. Dice come in as arguments."""
