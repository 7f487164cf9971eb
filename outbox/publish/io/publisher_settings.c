#include "publisher_settings.h"

const struct publisher_pace_row publisher_paces[PACES] = {
    [PACE_LATENCY] = {"latency", .poll_busy_ms = 0, .poll_idle_ms = 20, .linger_ms = 0},
    [PACE_BALANCED] = {"balanced", .poll_busy_ms = 3, .poll_idle_ms = 70, .linger_ms = 0},
    [PACE_ECONOMY] = {"economy", .poll_busy_ms = 35, .poll_idle_ms = 100, .linger_ms = 2},
};

/* In larger transactions the commit takes a smaller part of the time. */
int64_t publisher_settings_in_flight(const struct publisher_settings *settings)
{
	enum { IN_TRANSACTION = 40000 };
	bool exact = settings->delivery == DELIVERY_EXACTLY_ONCE;

	return exact && !settings->in_flight_said ? IN_TRANSACTION : settings->max_in_flight;
}
