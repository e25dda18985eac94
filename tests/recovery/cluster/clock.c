/*
 * A machine's clock that is wrong: preloaded into a program, adds CLOCK_AHEAD_SECONDS (which may be negative) to the time of
 * day. Clocks that only count on are left alone.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>

static time_t ahead(void)
{
    static time_t seconds;
    static int is_known;

    if (!is_known) {
        const char *text = getenv("CLOCK_AHEAD_SECONDS");

        seconds = text ? atoll(text) : 0;
        is_known = 1;
    }
    return seconds;
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
    static int (*real)(clockid_t, struct timespec *);
    int result;

    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "clock_gettime");
    result = real(clock, now);
    if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE || clock == CLOCK_TAI))
        now->tv_sec += ahead();
    return result;
}

int gettimeofday(struct timeval *now, void *zone)
{
    struct timespec precise;

    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &precise) != 0)
        return -1;
    now->tv_sec = precise.tv_sec;
    now->tv_usec = precise.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *seconds)
{
    struct timespec precise;

    if (clock_gettime(CLOCK_REALTIME, &precise) != 0)
        return -1;
    if (seconds)
        *seconds = precise.tv_sec;
    return precise.tv_sec;
}
