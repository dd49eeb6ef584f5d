"""What a worker believes, one owner each: the routes, the requests in flight, the health of instances."""
