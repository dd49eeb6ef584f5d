"""What a request costs as everything around it grows: instances, endpoints, workers, open streams."""
