"""Reconcilers. They take no input, are woken by a notice and by a timer, and may be killed at any point.

A retry inside a task would be a second way to do the same thing: the next activation is the retry.
"""
