"""One small case twice: in virtual time, and over real sockets through real workers. They should agree."""
