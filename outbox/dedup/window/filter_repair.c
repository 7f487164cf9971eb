#include "filter_repair.h"

#define WORTH_IT 1.02 /* less growth would not be noticed */

/* A filter of a few lines differs from theory by chance, so that only a clear excess is damage. The
 * rate of a line grows with the eighth power of its ids: one line that got many of a few ids is
 * some 20 deviations beyond the mean (once in 20,000 filters of 5 to 20 lines). */
#define FAR_BEYOND 1.5
#define DEVIATIONS 40
#define NOTICEABLE 1e-6 /* below it chance is not a normal distribution, and nobody pays for it */

struct filter_state filter_measure(const struct bloom_filter *filter, uint64_t ids)
{
	struct filter_state state = {.rate = bloom_measured_rate(filter)};
	double chance = 0, load = (double)ids / (double)filter->lines;
	if (ids) {
		state.explained = bloom_rate(load, BLOOM_PLACES);
		chance = bloom_rate_deviation(load, filter->lines, BLOOM_PLACES);
	}
	state.damaged = state.rate > NOTICEABLE &&
			state.rate > state.explained * FAR_BEYOND + chance * DEVIATIONS;
	return state;
}

uint64_t filter_repair_lines(const struct filter_state *state, const struct bloom_plan *target,
    int sub, uint64_t ids, uint64_t lines, uint64_t planned)
{
	uint64_t most = planned * FILTER_MOST_GROWTH;
	if (state->rate <= bloom_share(target, sub))
		return 0;

	uint64_t needed = bloom_sub_lines(target, sub, ids);
	/* a rate that no filter of this size reaches must not take all memory */
	if (needed > most)
		needed = most;
	if ((double)needed > (double)lines * WORTH_IT)
		return needed;
	return state->damaged ? lines : 0;
}
