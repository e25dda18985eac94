"""A server in the runner's process: hands out the tasks it is given, writes down all it hears and fails when told to.

It keeps tasks, sessions and reports while it is stopped, as a real one does. It judges nothing and redelivers nothing:
the steps of the scenario do.
"""

from typing import Any

import grpc
from google.protobuf.json_format import Parse
from orbit_api.admin.v1.admin_service_pb2_grpc import add_AdminServiceServicer_to_server
from orbit_api.worker.v1.worker_service_pb2_grpc import add_WorkerServiceServicer_to_server
from orbit_api.workflow.v1.payload_pb2 import Payload
from orbit_api.workflow.v1.task_pb2 import Task

from runner.fake_admin import FakeAdmin
from runner.fake_worker import FakeWorkers
from runner.faults import Faults
from runner.journal import Journal
from runner.oracle import MESSAGE_BYTES


class FakeServer:
    """The fake: both services on one port."""

    def __init__(self, faults: Faults) -> None:
        self.journal = Journal()
        self.faults = faults
        self.workers = FakeWorkers(self.journal, faults)
        # The rpcs that it lacks answer UNIMPLEMENTED.
        self.admin = FakeAdmin(self.journal, faults)  # type: ignore[abstract]
        self.port: int | None = None
        self._server: Any = None

    async def start(self) -> None:
        """Listens, on a new port."""
        options = [("grpc.so_reuseport", 0), ("grpc.max_receive_message_length", MESSAGE_BYTES)]
        # Clients may ping more often than gRPC's own servers bear; ours does.
        options += [("grpc.http2.min_ping_interval_without_data_ms", 10), ("grpc.http2.max_ping_strikes", 0)]
        self._server = grpc.aio.server(options=options)
        add_WorkerServiceServicer_to_server(self.workers, self._server)
        add_AdminServiceServicer_to_server(self.admin, self._server)
        self.port = self._server.add_insecure_port("127.0.0.1:0")
        self.workers.draining.clear()
        await self._server.start()

    async def stop(self) -> None:
        """Ends in order: says that it drains, ends streams with OK, lets calls finish."""
        self.workers.drain()
        await self._end(grace=1.0)

    async def kill(self) -> None:
        """Cuts every connection."""
        await self._end(grace=None)

    async def _end(self, grace: float | None) -> None:
        self.port = None
        if self._server is not None:
            await self._server.stop(grace)
            self._server = None

    def give(self, task: dict[str, Any]) -> None:
        """Queues a task: its fields, and `token`.

        `input_json` is exact text, `value_json` is sent as a structured value, `no_input` sends no content at all.
        """
        ids: dict[str, Any] = {"execution_id": "fake", "run": 1, "step": "work", "unit": "work", "attempt": 1}
        fields = ids | {"delivery": 1, "workflow": "fake", "version": "1.0.0"} | task
        token = fields.pop("token")
        payload = Payload()
        if "value_json" in fields:
            Parse(fields.pop("value_json"), payload.value)
        elif not fields.pop("no_input", False):
            payload.json = fields.pop("input_json", "null")
        progress = fields.pop("progress_json", None)
        fields.setdefault("idempotency_key", f"key-of-{token}")
        made = Task(task_token=token, input=payload, **fields)
        if progress is not None:
            made.progress.json = progress
        self.workers.give(made)
