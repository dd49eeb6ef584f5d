"""The data plane: stateless workers that route requests to model hosts and proxy them byte for byte."""
