"""Schedules, against a real server."""

from datetime import datetime, timedelta, timezone

import pytest

import orbit
from harness import run
from orbit import Client, SyncClient
from orbit.testing import Fake, Server

# Waits for ever, so that executions of a schedule stay open.
WAITS = """
name: waits
version: 1.0.0
signals: {go: {}}
steps:
  - id: wait
    await: {signal: go}
"""


def test_a_schedule_is_made_triggered_paused_changed_and_deleted(orbit_server: Server) -> None:
    async def test() -> None:
        async with Client(address=orbit_server.address) as client:
            await client.deploy(WAITS)
            schedules = client.schedules
            made = await schedules.create(
                "yearly",
                "waits",
                {"time": "${ schedule.nominal_time }"},
                crons=["0 3 1 1 *"],
                timezone="Europe/London",
                description="once a year",
            )
            assert (made.state, made.workflow, made.description) == ("ACTIVE", "waits", "once a year")
            with pytest.raises(orbit.AlreadyExists):
                await schedules.create("yearly", "waits", every=timedelta(hours=1))

            planned = await schedules.preview("yearly", after=datetime(2026, 6, 1, tzinfo=timezone.utc), count=2)
            times = [slot.nominal_time for slot in planned.slots]
            assert times == [datetime(2027, 1, 1, 3, tzinfo=timezone.utc), datetime(2028, 1, 1, 3, tzinfo=timezone.utc)]

            first = await schedules.trigger("yearly")
            assert (first.kind, first.outcome) == ("TRIGGER", "STARTED")
            assert first.execution_id is not None
            execution = await client.execution(first.execution_id).describe()
            assert execution.labels["orbit.schedule"] == "yearly"
            # The first one is open, and by default a slot then does nothing.
            assert (await schedules.trigger("yearly")).outcome == "OVERLAPPED"
            assert (await schedules.trigger("yearly", overlap="allow")).outcome == "STARTED"
            outcomes = sorted([slot.outcome async for slot in schedules.slots("yearly", page_size=1)])
            assert outcomes == ["OVERLAPPED", "STARTED", "STARTED"]

            paused = await schedules.pause("yearly", "holidays")
            assert (paused.state, paused.pause_note, paused.next_time) == ("PAUSED", "holidays", None)
            changed_since = made.etag
            await schedules.pause("yearly", "long holidays")
            with pytest.raises(orbit.Aborted) as mismatch:
                await schedules.delete("yearly", etag=changed_since)
            assert mismatch.value.reason == "ETAG_MISMATCH"
            paused = await schedules.get("yearly")
            assert (await schedules.resume("yearly", etag=paused.etag)).state == "ACTIVE"

            updated = await schedules.update("yearly", crons=["0 4 1 1 *"], input=None, max_actions=9)
            assert list(updated.raw.spec.crons) == ["0 4 1 1 *"]
            assert (updated.raw.spec.timezone, updated.raw.policies.max_actions) == ("Europe/London", 9)
            assert (updated.input, updated.description) == (None, "once a year")
            assert updated.last_execution_id not in (None, first.execution_id)
            assert updated.next_time is not None
            assert (updated.next_time.month, updated.next_time.hour) == (1, 4)
            with pytest.raises(ValueError, match="nothing to change"):
                await schedules.update("yearly")
            assert [schedule.id async for schedule in schedules.list(workflow="waits")] == ["yearly"]

            await schedules.delete("yearly")
            with pytest.raises(orbit.NotFound):
                await schedules.get("yearly")
            await schedules.delete("yearly", allow_missing=True)

    run(test())


def test_times_that_cannot_be_used_are_refused(orbit_client: SyncClient) -> None:
    orbit_client.deploy(WAITS)
    with pytest.raises(orbit.InvalidArgument) as refused:
        orbit_client.schedules.create("faulty", "waits", crons=["61 * * * *"], timezone="UTC")
    assert any("cron" in violation.field for violation in refused.value.violations)


def test_a_span_is_filled_again(orbit_client: SyncClient) -> None:
    orbit_client.deploy(WAITS)
    schedules = orbit_client.schedules
    schedules.create("hourly", "waits", every=timedelta(hours=1), paused=True)
    begin = datetime(2026, 1, 1, tzinfo=timezone.utc)
    with pytest.raises(ValueError, match="no time zone"):
        schedules.backfill("hourly", datetime(2026, 1, 1), begin)
    assert schedules.backfill("hourly", begin, begin + timedelta(hours=2), concurrency=3)
    assert "hourly" in [schedule.id for schedule in schedules.list()]
    schedules.delete("hourly")


def test_the_fake_has_no_schedules(orbit_fake: Fake) -> None:
    with orbit_fake.sync_client() as client, pytest.raises(orbit.Unimplemented):
        client.schedules.get("nightly")
