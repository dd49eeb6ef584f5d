"""Measurements that anybody can repeat: ``python -m benchmarks [PART ...]``, or ``make bench PART=name``.

A part runs, returns a Result (result.py) and leaves it in results/<part>.json and .md; docs/benchmarks.md says how to
read them. No part needs anything but this machine. Nothing of the product imports this.
"""
