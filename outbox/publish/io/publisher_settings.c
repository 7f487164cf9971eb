#include "publisher_settings.h"

/* In larger transactions the commit takes a smaller part of the time. */
int64_t publisher_settings_in_flight(const struct publisher_settings *settings)
{
	enum { IN_TRANSACTION = 40000 };
	bool exact = settings->delivery == DELIVERY_EXACTLY_ONCE;

	return exact && !settings->in_flight_said ? IN_TRANSACTION : settings->max_in_flight;
}
