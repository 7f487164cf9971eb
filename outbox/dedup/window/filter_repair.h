#pragma once
/*
 * Decides how to repair a filter that has more false positives than planned. Two causes exist. An
 * overfilled filter has more ids than its lines are planned for: it needs more lines. A damaged one
 * has bits that no id of its log set: it needs the same lines, made anew from the log.
 */
#include "bloom_filter.h"
#include "bloom_size.h"

enum { FILTER_MOST_GROWTH = 8 }; /* a filter grows to so many times its planned lines at most */

struct filter_state {
	double rate;      /* bloom_measured_rate */
	double explained; /* the rate that its ids explain */
	bool damaged;     /* the rate is far beyond that */
};
/* ids: the written ids of its log. */
struct filter_state filter_measure(const struct bloom_filter *filter, uint64_t ids);

/*
 * The lines with which to make the filter anew; 0: leave it as it is, because it is good, or
 * because no repair would help. target: a plan whose rate is to be met; sub: the number of the
 * sub-slice; ids: the ids that the filter has or will have; planned: its lines by the settings.
 */
uint64_t filter_repair_lines(const struct filter_state *state, const struct bloom_plan *target,
    int sub, uint64_t ids, uint64_t lines, uint64_t planned);
