#include "poison_guard.h"

#include <stddef.h>

void poison_guard_begin(
    struct poison_guard *guard, const struct deaths *deaths, int64_t inherited_tick, int64_t rows)
{
	guard->deaths = *deaths;
	guard->active = deaths->owners >= DEATHS_ACTIVATE;
	guard->out = guard->read = false;
	guard->batch = 1;
	guard->gone = 0;
	/* The next window holds the rows of a window that never came into the log. */
	guard->until_tick = inherited_tick + 1;
	guard->most = rows;
}

static void give_guard_turn(struct poison_guard *guard)
{
	const void *self = guard;
	if (guard->turn)
		atomic_compare_exchange_strong(guard->turn, &self, NULL);
}

void poison_guard_end(struct poison_guard *guard)
{
	give_guard_turn(guard);
	guard->active = false;
	guard->deaths = (struct deaths){0};
}

bool poison_guard_has_turn(struct poison_guard *guard)
{
	const void *holder = NULL;
	return !guard->turn || atomic_compare_exchange_strong(guard->turn, &holder, guard) ||
	       holder == guard;
}

bool poison_guard_reads(const struct poison_guard *guard)
{
	return guard->out && !guard->read;
}

bool poison_guard_convicts(const struct poison_guard *guard)
{
	return guard->active && guard->deaths.alone >= DEATHS_CONVICT;
}

struct poison_guard_row poison_guard_next(
    const struct poison_guard *guard, const struct poison_guard_step *step)
{
	struct poison_guard_row row = {.deaths = guard->deaths,
	    .marks = step->marks,
	    .batch = guard->gone < ROWS_ALONE ? 1 : 2 * guard->batch};
	bool over = step->first_tick >= guard->until_tick || guard->gone >= guard->most;
	bool judged = poison_guard_convicts(guard) && guard->read;

	/* If the process dies before the row is noted as parked, the row must still be convicted.
	 */
	if (judged && step->renews_alone) {
		row.marks = false;
		row.out = guard->out;
		return row;
	}

	bool waits = guard->out && !judged && !(guard->read && step->published);
	bool survived = waits && step->renews && guard->read;
	/* A row that is still being read may crash us later; one that was not requested cannot. */
	bool unasked = waits && step->renews && !guard->read && !step->reading;

	/* judged: if the topic's policy is to stop, a restart tries the row again. */
	if (judged || survived || unasked || step->progress)
		row.deaths.alone = 0;
	if (step->progress && (!guard->active || over))
		row.deaths.owners = 0;

	row.ends = guard->active && ((step->progress && over) || step->stuck);
	row.marks &= !row.ends;
	row.out = row.marks || (waits && !survived && !row.ends);
	row.deaths.marked = row.marks ? row.batch == 1 : row.out && guard->deaths.marked;
	return row;
}

void poison_guard_written(struct poison_guard *guard, const struct poison_guard_row *row)
{
	guard->deaths = row->deaths;
	guard->out = row->out;
	if (row->marks) {
		guard->read = false;
		guard->batch = row->batch;
		guard->gone += row->batch;
	}
	if (row->ends)
		guard->active = false;

	/* The next row may come much later; and a row that outlived a renewal does not crash us. */
	if (!row->out)
		give_guard_turn(guard);
}
