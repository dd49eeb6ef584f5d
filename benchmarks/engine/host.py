"""One model host: llama.cpp's own HTTP server in this process. Runs in the engine's environment, with xllamacpp."""

import argparse
import signal
import sys

import xllamacpp


def main() -> None:
    """Serve until a signal; prints the address when ready."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--model-name", required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--slots", type=int, required=True)
    parser.add_argument("--context-tokens", type=int, required=True, help="of each slot")
    options = parser.parse_args()
    params = xllamacpp.CommonParams()
    params.model.path = options.model
    # Routers that ask the hosts for their models pass on no other name.
    params.model_alias = {options.model_name}
    params.hostnames = ["127.0.0.1"]
    params.port = options.port
    params.n_parallel = options.slots
    params.n_ctx = options.slots * options.context_tokens
    params.cpuparams.n_threads = 1
    params.cpuparams_batch.n_threads = 1
    params.n_threads_http = 8
    # Evicted prompts would be kept in memory and hide where a request went; so the slots are the cache.
    params.cache_ram_mib = 0
    params.endpoint_metrics = True
    params.warmup = False
    server = xllamacpp.Server(params)
    print(server.listening_address, flush=True)
    signal.sigwait({signal.SIGTERM, signal.SIGINT})
    sys.exit(0)


if __name__ == "__main__":
    main()
