"""Says when schedules fire, without any of our code: `tests/schedule.rs` compares. One JSON object a line.

- `cron`: random expressions in random zones, from 1972 to 2100, by cronsim, which follows Debian's cron. Where it is
  known to differ (below), and for the policies, every time of a day is tried with zoneinfo instead.
- `policy`: expressions near changes of the clocks, under each policy for missing and repeated times.
- `local`: what clocks show.

Differences, which are meant: cronsim goes from hour to hour in steps of 3,600 seconds, and so loses its way where
clocks change by half an hour or at midnight; and for an instant in the second pass of a repeated hour it answers with
the first.
"""

import json
import random
import sys
from collections.abc import Iterable, Iterator
from datetime import date, datetime, timedelta, timezone
from zoneinfo import ZoneInfo, available_timezones, reset_tzpath

from cronsim import CronSim, CronSimError

UTC = timezone.utc
DAY = timedelta(days=1)
# Before 1972 some clocks were off by seconds, which expressions with minutes say nothing about.
FIRST = datetime(1972, 6, 1, tzinfo=UTC)
LAST = datetime(2100, 12, 1, tzinfo=UTC)
# Zones with each kind of change: an hour, half an hour, at midnight, negative, irregular, a whole day.
CHANGING = [
    "America/New_York",
    "Europe/London",
    "Australia/Lord_Howe",
    "Africa/Casablanca",
    "Asia/Tehran",
    "Pacific/Apia",
    "America/Sao_Paulo",
    "Europe/Dublin",
    "Asia/Gaza",
    "America/St_Johns",
]
MONTHS = ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"]
WEEKDAYS = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"]


def main() -> None:
    reset_tzpath(to=[])  # The pinned data, whatever the machine has.
    chance = random.Random(int(sys.argv[1]))
    count = int(sys.argv[2])
    zones = sorted(name for name in available_timezones() if name not in ("Factory", "localtime"))
    for number in range(count):
        zone = chance.choice(CHANGING) if number % 2 else chance.choice(zones)
        after = near_change(chance, zone) if number % 4 == 1 else instant(chance)
        emit(kind="cron", **cron_case(chance, zone, after))
    for _ in range(count // 10):
        emit(kind="policy", **policy_case(chance, chance.choice(CHANGING)))
    for _ in range(count):
        zone, at = chance.choice(zones), instant(chance)
        emit(kind="local", zone=zone, at=seconds(at), local=at.astimezone(ZoneInfo(zone)).isoformat())


def emit(**case: object) -> None:
    print(json.dumps(case))


def seconds(at: datetime) -> int:
    return int(at.timestamp())


def instant(chance: random.Random) -> datetime:
    return FIRST + timedelta(seconds=chance.randrange(int((LAST - FIRST).total_seconds())))


def near_change(chance: random.Random, zone: str) -> datetime:
    """An instant within some hours of a change of the clocks, if a year has one."""
    start = min(instant(chance), LAST - 800 * DAY)
    tz = ZoneInfo(zone)
    for days in range(370):
        at = start + days * DAY
        if at > LAST:
            break
        if at.astimezone(tz).utcoffset() != (at + DAY).astimezone(tz).utcoffset():
            return at + timedelta(seconds=chance.randrange(-7_200, 100_000))
    return start


def field(chance: random.Random, first: int, last: int, names: list[str] | None = None) -> str:
    def number() -> str:
        value = chance.randint(first, last)
        named = names is not None and chance.random() < 0.3
        return names[(value - first) % len(names)] if names is not None and named else str(value)

    def item() -> str:
        kind = chance.randrange(6)
        low, high = sorted((chance.randint(first, last), chance.randint(first, last)))
        if kind < 3:
            return number()
        if kind == 3:
            return f"{low}-{high}"
        step = chance.randint(1, max(1, (last - first) // 2))
        return f"{low}-{high}/{step}" if kind == 4 and low < high else f"*/{step}" if first < 2 else number()

    if chance.random() < 0.35:
        return "*"
    return ",".join(item() for _ in range(chance.choice([1, 1, 1, 2, 3])))


def expression(chance: random.Random) -> str:
    if chance.random() < 0.3:  # The kind that people write.
        return f"{chance.randint(0, 59)} {chance.randint(0, 4)} * * {chance.choice(['*', '1-5', '0', '7'])}"
    return " ".join(
        [
            field(chance, 0, 59),
            field(chance, 0, 23),
            field(chance, 1, 31),
            field(chance, 1, 12, MONTHS),
            # cronsim counts a star of weekdays to 7, so its steps begin elsewhere.
            field(chance, 0, 6, WEEKDAYS).replace("*/", "1-6/"),
        ]
    )


def follows_the_clock(cron: str) -> bool:
    return any(part.startswith("*") for part in cron.split()[:2])


def cron_case(chance: random.Random, zone: str, after: datetime) -> dict[str, object]:
    while True:
        cron = expression(chance)
        try:
            slots = by_cronsim(cron, zone, after, 3)
        except Lost:
            slots = by_trying(cron, zone, after + timedelta(seconds=1), after + 40 * DAY, ("skip", "both"))[:3]
        except CronSimError:
            continue
        if slots and slots[-1] < LAST:
            break
    if follows_the_clock(cron) and any(changes_around(zone, at) for at in [after, *slots]):
        default = ("skip", "both")
        end = max(slots[-1], after) + 3 * DAY
        tried = by_trying(cron, zone, after + timedelta(seconds=1), min(end, after + 40 * DAY), default)
        slots = tried[:3] if slots[-1] < after + 30 * DAY else []
    return {"cron": cron, "zone": zone, "after": seconds(after), "slots": [seconds(at) for at in slots]}


class Lost(Exception):
    """cronsim goes round in circles."""


class Bounded(CronSim):
    """Tells when cronsim goes round in circles, as it does at the end of some repeated half hours."""

    ticks = 0

    def tick(self, seconds: int = 1) -> None:
        self.ticks += 1
        if self.ticks > 100_000:
            raise Lost
        super().tick(seconds)


def by_cronsim(cron: str, zone: str, after: datetime, count: int) -> list[datetime]:
    """The next slots: from some days before, since times that are moved come later than they say."""
    slots: set[datetime] = set()
    for local in Bounded(cron, (after - 3 * DAY).astimezone(ZoneInfo(zone))):
        at = local.astimezone(UTC)
        if at > LAST:
            break
        if at > after:
            slots.add(at)
        if len(slots) == count:
            break
    return sorted(slots)


def changes_around(zone: str, at: datetime) -> bool:
    tz = ZoneInfo(zone)
    return len({(at + hours * timedelta(hours=6)).astimezone(tz).utcoffset() for hours in range(-12, 9)}) > 1


def policy_case(chance: random.Random, zone: str) -> dict[str, object]:
    start = near_change(chance, zone) - DAY
    policies = (chance.choice(["skip", "shift"]), chance.choice(["first", "last", "both"]))
    while True:
        cron = expression(chance)
        try:
            slots = by_trying(cron, zone, start, start + 3 * DAY, policies)
        except CronSimError:
            continue
        if slots or chance.random() < 0.05:
            break
    return {
        "cron": cron,
        "zone": zone,
        "missing": policies[0],
        "repeated": policies[1],
        "from": seconds(start),
        "to": seconds(start + 3 * DAY),
        "slots": [seconds(at) for at in slots],
    }


def by_trying(cron: str, zone: str, start: datetime, end: datetime, policies: tuple[str, str]) -> list[datetime]:
    """All slots in a span: each matching time of each day, turned into the instants that it has."""
    tz = ZoneInfo(zone)
    missing, repeated = policies
    slots: set[datetime] = set()
    for local in local_times(cron, (start - 3 * DAY).date(), (end + 2 * DAY).date()):
        first = local.replace(tzinfo=tz).astimezone(UTC)
        last = local.replace(tzinfo=tz, fold=1).astimezone(UTC)
        if first.astimezone(tz).replace(tzinfo=None) != local:  # The clocks were put forward over it.
            if missing == "shift":
                slots.add(change(tz, first))
        elif first == last or repeated == "first":
            slots.add(first)
        elif repeated == "last":
            slots.add(last)
        else:
            slots |= {first, last}
    return sorted(at for at in slots if start <= at < end)


def local_times(cron: str, first: date, last: date) -> Iterator[datetime]:
    read = CronSim(cron, datetime(2000, 1, 1))
    days: Iterable[date] = (first + n * DAY for n in range((last - first).days + 1))
    for day in days:
        if day.month in read.months and read.match_day(day):
            for hour in sorted(read.hours):
                for minute in sorted(read.minutes):
                    yield datetime(day.year, day.month, day.day, hour, minute)


def change(tz: ZoneInfo, near: datetime) -> datetime:
    """The instant, near a missing time, at which the clocks were put forward."""
    low, high = near - 2 * DAY, near + 2 * DAY
    ahead = high.astimezone(tz).utcoffset()
    while high - low > timedelta(seconds=1):
        middle = low + timedelta(seconds=int((high - low).total_seconds()) // 2)
        if middle.astimezone(tz).utcoffset() == ahead:
            high = middle
        else:
            low = middle
    return high


if __name__ == "__main__":
    main()
