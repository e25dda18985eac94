"""The driver of the Python SDK: does what the suite says over stdin and stdout, as `tests/sdk/README.md` has it."""

import asyncio
import contextlib
import json
import logging
import os
import signal
import sys
import time
from datetime import datetime, timedelta
from typing import Any

import orbit
from handlers import HANDLERS, Gates
from orbit import Client, ExecutionHandle, Worker, WorkerStatus

# The loggers of the SDK, and what every record has; the rest of a record is its fields.
LOGGERS = ("orbit.worker", "orbit.task")
PLAIN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime"}

Args = dict[str, Any]
Answer = dict[str, Any]


def tell(line: dict[str, Any]) -> None:
    """Writes one line; from any thread."""
    # One call of `write` for each line, so that lines of several threads do not mix.
    sys.stdout.write(json.dumps(line, ensure_ascii=False) + "\n")
    sys.stdout.flush()


class UnknownOp(Exception):
    """The suite asked for something that this driver does not know."""


class Driver:
    """One process: a client, and at most one worker at a time."""

    def __init__(self) -> None:
        self._client: Client | None = None
        self._worker: Worker | None = None
        self._running: asyncio.Task[None] | None = None
        # Whether the worker was told to stop by a command; otherwise it returns because of a signal, or a refusal.
        self._stop_told = False
        self._gates = Gates()
        self._commands: set[asyncio.Task[None]] = set()

    # --- The lines --------------------------------------------------------------------------------------------------

    def take(self, line: str) -> None:
        """Begins one command."""
        task = asyncio.ensure_future(self._answer(json.loads(line)))
        self._commands.add(task)
        task.add_done_callback(self._commands.discard)

    async def _answer(self, command: dict[str, Any]) -> None:
        args = {name: value for name, value in (command.get("args") or {}).items() if value is not None}
        try:
            operation = getattr(self, "_" + command["op"].replace(".", "_"), None)
            if operation is None:
                raise UnknownOp(command["op"])
            reply = {"ok": await operation(args, command["id"])}
        except Exception as error:
            reply = {"error": describe(error)}
        tell({"id": command["id"], **reply})

    async def stop(self) -> None:
        """Ends the worker by the SDK's rule, if there is one."""
        self._stop_told = True
        if self._worker is not None and self._running is not None:
            self._worker.stop()
            await self._running

    # --- Client -----------------------------------------------------------------------------------------------------

    @property
    def client(self) -> Client:
        if self._client is None:
            self._client = Client()
        return self._client

    def _handle(self, args: Args) -> ExecutionHandle:
        return self.client.execution(args["id"], args.get("uid", ""))

    async def _client_connect(self, args: Args, command: int) -> Answer:
        client = Client(**args)
        if self._client is not None:
            await self._client.close()
        self._client = client
        return {"address": client.config.address}

    async def _client_deploy(self, args: Args, command: int) -> Answer:
        done = await self.client.deploy(args["source"], **some(args, "file_name", "validate_only"))
        return {"name": done.name, "version": done.version, "hash": done.hash, "created": done.created}

    async def _client_start(self, args: Args, command: int) -> Answer:
        options = some(args, "version", "id", "labels", "request_id", "id_reuse_policy")
        options |= some(args, start_delay="start_delay_seconds", timeout="timeout_seconds")
        if "input_json" in args:
            options["input"] = json.loads(args["input_json"])
        handle = await self.client.start(args["workflow"], **options)
        return {"id": handle.id, "uid": handle.uid, "version": handle.version, "created": handle.created}

    async def _client_result(self, args: Args, command: int) -> Answer:
        return {"output_json": text(await self._handle(args).result(**some(args, timeout="timeout_seconds")))}

    async def _client_wait(self, args: Args, command: int) -> Answer:
        return {"state": (await self._handle(args).wait(**some(args, timeout="timeout_seconds"))).state.value}

    async def _client_describe(self, args: Args, command: int) -> Answer:
        it = await self._handle(args).describe(**some(args, timeout="timeout_seconds"))
        return {
            "id": it.id,
            "uid": it.uid,
            "workflow": it.workflow,
            "version": it.version,
            "state": it.state.value,
            "labels": it.labels,
            "input_json": text(it.input) if it.raw.HasField("input") else None,
            "output_json": text(it.output) if it.raw.HasField("output") else None,
            "steps": [
                {
                    "step": step.id,
                    "state": step.state,
                    "attempt": step.attempt,
                    "delivery": step.delivery,
                    "output_json": text(step.output) if step.raw.HasField("output") else None,
                }
                for step in it.steps
            ],
        }

    async def _client_signal(self, args: Args, command: int) -> Answer:
        options = some(args, "request_id")
        if "payload_json" in args:
            options["payload"] = json.loads(args["payload_json"])
        return {"event_number": await self._handle(args).signal(args["name"], **options)}

    async def _client_query(self, args: Args, command: int) -> Answer:
        return {"result_json": text(await self._handle(args).query(args["query"]))}

    async def _client_cancel(self, args: Args, command: int) -> Answer:
        await self._handle(args).cancel(**some(args, "reason"))
        return {}

    async def _client_terminate(self, args: Args, command: int) -> Answer:
        await self._handle(args).terminate(**some(args, "reason"))
        return {}

    async def _client_list(self, args: Args, command: int) -> Answer:
        ids: list[str] = []
        async with contextlib.aclosing(self.client.list(**some(args, "filter", "page_size"))) as executions:  # type: ignore[type-var]
            async for execution in executions:
                ids.append(execution.id)
                if len(ids) == args.get("limit"):
                    break
        return {"ids": ids}

    async def _client_rerun(self, args: Args, command: int) -> Answer:
        options = some(args, "labels", "request_id", id="new_id")
        if "input_json" in args:
            options["input"] = json.loads(args["input_json"])
        handle = await self._handle(args).rerun(args["from_step"], **options)
        return {"id": handle.id, "uid": handle.uid, "version": handle.version, "created": handle.created}

    async def _client_count(self, args: Args, command: int) -> Answer:
        return {"counts": {state.value: count for state, count in (await self.client.count()).items()}}

    async def _client_definitions(self, args: Args, command: int) -> Answer:
        found = self.client.definitions(**some(args, "name", "page_size"))
        return {"definitions": [f"{one.name}@{one.version}" async for one in found]}

    async def _client_definition(self, args: Args, command: int) -> Answer:
        found = await self.client.definition(args["name"], **some(args, "version"))
        return {"version": found.definition.version, "hash": found.hash, "source": found.source}

    async def _client_events(self, args: Args, command: int) -> Answer:
        events: list[Answer] = []

        async def watch() -> None:
            async with contextlib.aclosing(self._handle(args).events(**some(args, "after"))) as watched:  # type: ignore[type-var]
                async for event in watched:
                    events.append({"number": event.number, "type": event.type})
                    tell({"event": "execution_event", "command": command, **events[-1]})
                    if len(events) == args.get("limit"):
                        break

        try:
            await asyncio.wait_for(watch(), args.get("timeout_seconds"))
        except asyncio.TimeoutError:
            raise orbit.DeadlineExceeded("the watch took too long") from None
        return {"events": events}

    # --- Schedules --------------------------------------------------------------------------------------------------

    async def _schedule_create(self, args: Args, command: int) -> Answer:
        options = some(args, "crons", "timezone", "overlap", "max_actions", "pause_on_failure", "description", "paused")
        options |= some(args, "version", "labels", "request_id")
        if "input_json" in args:
            options["input"] = json.loads(args["input_json"])
        if "every_seconds" in args:
            options["every"] = timedelta(seconds=args["every_seconds"])
        return schedule(await self.client.schedules.create(args["id"], args["workflow"], **options))

    async def _schedule_get(self, args: Args, command: int) -> Answer:
        return schedule(await self.client.schedules.get(args["id"]))

    async def _schedule_list(self, args: Args, command: int) -> Answer:
        return {"ids": [one.id async for one in self.client.schedules.list(**some(args, "workflow", "page_size"))]}

    async def _schedule_update(self, args: Args, command: int) -> Answer:
        options = some(args, "crons", "timezone", "description", "etag", "request_id")
        if "input_json" in args:
            options["input"] = json.loads(args["input_json"])
        return schedule(await self.client.schedules.update(args["id"], **options))

    async def _schedule_pause(self, args: Args, command: int) -> Answer:
        return schedule(await self.client.schedules.pause(args["id"], **some(args, "note", "etag", "request_id")))

    async def _schedule_resume(self, args: Args, command: int) -> Answer:
        return schedule(await self.client.schedules.resume(args["id"], **some(args, "etag", "request_id")))

    async def _schedule_trigger(self, args: Args, command: int) -> Answer:
        return slot(await self.client.schedules.trigger(args["id"], **some(args, "overlap", "request_id")))

    async def _schedule_backfill(self, args: Args, command: int) -> Answer:
        first, last = parse_time(args["first_time"]), parse_time(args["last_time"])
        options = some(args, "concurrency", "request_id")
        return {"request": await self.client.schedules.backfill(args["id"], first, last, **options)}

    async def _schedule_preview(self, args: Args, command: int) -> Answer:
        options = some(args, "id", "crons", "timezone", "count")
        if "after_time" in args:
            options["after"] = parse_time(args["after_time"])
        preview = await self.client.schedules.preview(**options)
        return {
            "slots": [{"nominal_time": time_text(one.nominal_time), "skip": one.skip} for one in preview.slots],
            "unlisted": preview.unlisted,
            "stop_time": time_text(preview.stop_time),
        }

    async def _schedule_slots(self, args: Args, command: int) -> Answer:
        return {
            "slots": [slot(one) async for one in self.client.schedules.slots(args["id"], **some(args, "page_size"))]
        }

    async def _schedule_delete(self, args: Args, command: int) -> Answer:
        await self.client.schedules.delete(args["id"], **some(args, "etag", "allow_missing", "request_id"))
        return {}

    # --- Batches ----------------------------------------------------------------------------------------------------

    async def _batch_create(self, args: Args, command: int) -> Answer:
        options = some(args, "reason", "max_executions", "dry_run", "request_id")
        return batch(await self.client.batches.create(args["action"], args["filter"], **options))

    async def _batch_get(self, args: Args, command: int) -> Answer:
        return batch(await self.client.batches.get(args["id"]))

    async def _batch_list(self, args: Args, command: int) -> Answer:
        return {"ids": [one.id async for one in self.client.batches.list(**some(args, "page_size"))]}

    async def _batch_cancel(self, args: Args, command: int) -> Answer:
        return batch(await self.client.batches.cancel(args["id"]))

    async def _batch_wait(self, args: Args, command: int) -> Answer:
        return batch(await self.client.batches.wait(args["id"], **some(args, timeout="timeout_seconds")))

    # --- Worker -----------------------------------------------------------------------------------------------------

    async def _worker_start(self, args: Args, command: int) -> Answer:
        options = some(args, "queues", "mode", "worker_id", drain_timeout="drain_seconds")
        options |= some(args, stream_retry="stream_retry_seconds")
        worker = Worker(slots=args.get("slots", 4), on_state=told_state, **options)
        for contract, name in args["contracts"].items():
            worker.add(HANDLERS[name](tell, self._gates), contract)
        if self._running is not None and not self._running.done():
            raise RuntimeError("a worker runs already")
        self._worker, self._stop_told = worker, False
        self._running = asyncio.ensure_future(self._run(worker))
        await asyncio.sleep(0)
        return {}

    async def _run(self, worker: Worker) -> None:
        fault: Answer | None = None
        try:
            await worker.run()
        except Exception as error:
            fault = describe(error)
        tell({"event": "returned", "error": fault})
        if fault is None and not self._stop_told:
            os._exit(0)  # The SDK took a signal itself.

    async def _worker_stop(self, args: Args, command: int) -> Answer:
        begin = time.monotonic()
        await self.stop()
        return {"seconds": time.monotonic() - begin}

    async def _worker_status(self, args: Args, command: int) -> Answer:
        if self._worker is None:
            raise RuntimeError("there is no worker")
        status = self._worker.status
        return {
            "state": status.state,
            "mode": status.mode,
            "held": status.held,
            "last_contact_seconds": status.last_contact_seconds,
            "healthy": status.healthy,
        }

    async def _gate_open(self, args: Args, command: int) -> Answer:
        self._gates.open(args["gate"])
        return {}


def schedule(it: orbit.Schedule) -> Answer:
    """A schedule in the words of the suite."""
    return {
        "id": it.id,
        "uid": it.uid,
        "etag": it.etag,
        "state": it.state,
        "workflow": it.workflow,
        "description": it.description,
        "pause_note": it.pause_note,
        "invalid_reason": it.invalid_reason,
        "next_time": time_text(it.next_time),
        "last_execution_id": it.last_execution_id,
    }


def slot(it: orbit.Slot) -> Answer:
    """A slot in the words of the suite."""
    return {
        "nominal_time": time_text(it.nominal_time),
        "kind": it.kind,
        "outcome": it.outcome,
        "execution_id": it.execution_id,
        "request": it.request,
        "count": it.count,
    }


def batch(it: orbit.Batch) -> Answer:
    """A batch in the words of the suite."""
    names = ("id", "action", "filter", "state", "expected", "done", "skipped", "failed", "ended")
    return {name: getattr(it, name) for name in names}


def time_text(time: datetime | None) -> str | None:
    """A time as RFC 3339 has it."""
    return None if time is None else time.isoformat().replace("+00:00", "Z")


def parse_time(text: str) -> datetime:
    """A time of that form."""
    return datetime.fromisoformat(text.replace("Z", "+00:00"))


def told_state(state: str, status: WorkerStatus) -> None:
    """Tells a change of the worker's state."""
    tell({"event": "state", "state": state, **({"mode": status.mode} if state == "connected" else {})})


def some(args: Args, *names: str, **renamed: str) -> Args:
    """The arguments that are there: under their own names, or under the SDK's."""
    pairs = {**{name: name for name in names}, **renamed}
    return {new: args[old] for new, old in pairs.items() if old in args}


def text(value: Any) -> str:
    """JSON text with every digit."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def describe(error: BaseException) -> Answer:
    """An error in the words of the suite."""
    answer: Answer = {"class": type(error).__name__, "message": str(error)}
    if isinstance(error, orbit.OrbitError):
        answer |= {"code": error.code.name, "reason": error.reason, "metadata": error.metadata}
    if isinstance(error, orbit.InvalidArgument):
        answer["violations"] = [{"field": one.field, "description": one.description} for one in error.violations]
    if isinstance(error, orbit.ExecutionFailed) and (failure := error.execution.failure) is not None:
        details = text(failure.details) if error.execution.raw.failure.HasField("details") else None
        answer["failure"] = {
            "code": failure.code,
            "message": failure.message,
            "unit": failure.unit,
            "details_json": details,
        }
    return answer


class Told(logging.Handler):
    """Tells each record of the SDK."""

    def emit(self, record: logging.LogRecord) -> None:
        fields = {name: str(value) for name, value in vars(record).items() if name not in PLAIN}
        level = record.levelname.lower().replace("critical", "error")
        tell({"event": "log", "level": level, "message": record.getMessage(), "fields": fields})


async def main() -> None:
    """Takes commands until stdin ends or a signal comes."""
    for name in LOGGERS:
        logger = logging.getLogger(name)
        logger.setLevel(logging.INFO)
        logger.addHandler(Told())
        logger.propagate = False
    loop = asyncio.get_running_loop()
    driver = Driver()
    signalled = asyncio.Event()

    async def read() -> None:
        reader = asyncio.StreamReader(limit=64 * 1024 * 1024)
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        while line := await reader.readline():
            driver.take(line.decode())
        os._exit(0)  # At once, without draining.

    # A worker that runs takes the signals itself and gives them back when it returns; the driver asks once more then.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: loop.call_soon_threadsafe(signalled.set))
    tell({"event": "ready", "language": "python", "sdk": f"orbit-sdk {orbit.__version__}"})
    reading = asyncio.ensure_future(read())
    waiting = asyncio.ensure_future(signalled.wait())
    await asyncio.wait([reading, waiting], return_when=asyncio.FIRST_COMPLETED)
    if reading.done():
        reading.result()
    await driver.stop()
    os._exit(0)


if __name__ == "__main__":
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    asyncio.run(main())
