"""Which rule for overflow and saturation keeps a fleet warm and level: the product's and others, in virtual time."""
