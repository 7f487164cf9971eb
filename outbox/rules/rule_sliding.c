/*
 * At most N messages in any interval of a fixed length, [begin, begin + within).
 *
 * One more message is too many if it and N neighbours of it lie in one interval, that is, if the
 * last of them is less than `within` behind the first. Neighbours are in the order of their times,
 * so only sequences of N matter that end at the message, begin behind it, or surround it. For the
 * newest message that is one sequence.
 */
#include <inttypes.h>
#include "rule.h"

struct sliding {
	struct rule rule;
	int64_t within_ms;
};

static int64_t within_of(const struct rule *rule)
{
	return ((const struct sliding *)rule)->within_ms;
}

static const struct spec_setting sliding_settings[] = {
    {"within", "a time from 1ms to 3650d, as within=10s", spec_set_number,
	offsetof(struct sliding, within_ms), units_duration, 1, INT64_C(3650) * 86400 * 1000},
    {NULL},
};

static bool check_sliding(struct rule *rule, struct err *err)
{
	rule->reach_ms = within_of(rule);
	return rule->reach_ms > 0 ||
	       err_set(err, ERR_CONFIG, "within is missing: so long is a stretch, as within=10s");
}

/* Are these neighbours and the message in one interval? */
static bool are_together(const struct rule *rule, const struct occurrence *row, int64_t time_ms)
{
	int64_t first = row[0].time_ms, last = row[rule->most - 1].time_ms;
	if (time_ms < first)
		first = time_ms;
	if (time_ms > last)
		last = time_ms;
	return last - first < within_of(rule);
}

static bool exceeds_stretch(struct rule *rule, const struct occurrences_key *known, int64_t time_ms)
{
	int64_t count = known->count, most = rule->most;
	int64_t behind = (int64_t)occurrences_before(known, time_ms + 1);
	for (int64_t i = behind > most ? behind - most : 0; i <= behind && i <= count - most; i++)
		if (are_together(rule, &known->list[i], time_ms))
			return true;
	return false;
}

static int64_t oldest_of_stretch(const struct rule *rule, int64_t time_ms)
{
	return time_ms - within_of(rule) + 1;
}

static void span_stretch(struct rule *rule, int64_t time_ms, struct rule_span *ret_span)
{
	int64_t within_ms = within_of(rule);
	*ret_span = (struct rule_span){.within_ms = within_ms,
	    .pieces = {{time_ms - within_ms + 1, time_ms + within_ms}},
	    .count = 1,
	    .until_ms = time_ms + within_ms};
}

const struct rule_type rule_sliding = {
    .spec = {"sliding", rule_settings, RULE_TAKES, RULE_NEEDS, sliding_settings},
    .size = sizeof(struct sliding),
    .check = check_sliding,
    .exceeds = exceeds_stretch,
    .oldest = oldest_of_stretch,
    .span = span_stretch,
};
