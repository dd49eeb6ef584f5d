"""The simulated model host: an engine model in virtual time (engine.py, pure) and the server that speaks for it.

The engine, its cache, calibration and tokens know nothing of sockets, clocks or asyncio; live.py drives the engine by
the wall clock, host.py serves it, command.py is ``warmroute host``. Imports nothing of the product's other parts.
"""
