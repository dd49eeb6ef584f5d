"""Tasks that last as long as the worker: looking for routes, renewing leases, keeping time limits.

One that ends by itself is a fault of ours, and the worker could go on without it and do wrong in silence. So the loop's
exception handler is told; a worker's handler makes room for a new worker (worker.serve).
"""

import asyncio
from collections.abc import Coroutine
from typing import Any

LASTING = "lasting"
"""In the context that the loop's exception handler gets: the name of the task that has ended."""


def lasting(work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
    """Run ``work`` as a task that ends only when it is cancelled."""
    task = asyncio.get_running_loop().create_task(work, name=name)
    task.add_done_callback(_ended)
    return task


def _ended(task: asyncio.Task[None]) -> None:
    # A CancelledError without a request to cancel came out of a library, and is as much a fault as any error.
    if task.cancelling():
        return
    context: dict[str, Any] = {
        "message": f"the task {task.get_name()} ended by itself, which is a fault in warmroute; please report it",
        LASTING: task.get_name(),
    }
    error = None if task.cancelled() else task.exception()
    if error is not None:
        context["exception"] = error
    task.get_loop().call_exception_handler(context)
