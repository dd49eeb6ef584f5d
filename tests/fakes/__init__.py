"""Fakes of what lies outside the product, and helpers to drive the product from outside."""
