"""``warmroute advise``: from a log of requests to a PrefixLength and a ConcurrencyThreshold.

One pass reads the log (log.py, forms.py), counts what repeats in bounded sketches (sketches.py, serialisation.py) and
keeps the last requests on disk, as hashes (spool.py). Those are replayed in virtual time for each pair (fleet.py,
trials.py), through the product's own key, order and pick. No prompt is kept, printed or put into an error.
"""
