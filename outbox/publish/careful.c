#include "careful.h"

#include <stddef.h>

void careful_begin(
    struct careful *careful, const struct deaths *deaths, int64_t inherited_tick, int64_t rows)
{
	careful->deaths = *deaths;
	careful->active = deaths->owners >= DEATHS_CAREFUL;
	careful->out = careful->read = false;
	careful->batch = 1;
	careful->gone = 0;
	/* rows of a window that never came into the log are in the next one */
	careful->until_tick = inherited_tick + 1;
	careful->most = rows;
}

static void give_turn(struct careful *careful)
{
	const void *self = careful;
	if (careful->turn)
		atomic_compare_exchange_strong(careful->turn, &self, NULL);
}

void careful_end(struct careful *careful)
{
	give_turn(careful);
	careful->active = false;
	careful->deaths = (struct deaths){0};
}

bool careful_has_turn(struct careful *careful)
{
	const void *holder = NULL;
	return !careful->turn || atomic_compare_exchange_strong(careful->turn, &holder, careful) ||
	       holder == careful;
}

bool careful_reads(const struct careful *careful)
{
	return careful->out && !careful->read;
}

bool careful_convicts(const struct careful *careful)
{
	return careful->active && careful->deaths.alone >= DEATHS_CONVICT;
}

struct careful_row careful_next(const struct careful *careful, const struct careful_step *step)
{
	struct careful_row row = {.deaths = careful->deaths,
	    .marks = step->marks,
	    .batch = careful->gone < ROWS_ALONE ? 1 : 2 * careful->batch};
	bool over = step->first_tick >= careful->until_tick || careful->gone >= careful->most;
	bool judged = careful_convicts(careful) && careful->read;
	/* a death before its park is written must find it convicted */
	if (judged && step->renews_alone) {
		row.marks = false;
		row.out = careful->out;
		return row;
	}
	bool waits = careful->out && !judged && !(careful->read && step->published);
	bool survived = waits && step->renews && careful->read;
	/* what is still to come has done nothing yet, and what was not asked for never will */
	bool unasked = waits && step->renews && !careful->read && !step->reading;
	/* judged: where the topic's policy is to stop, a restart tries it again */
	if (judged || survived || unasked || step->progress)
		row.deaths.alone = 0;
	if (step->progress && (!careful->active || over))
		row.deaths.owners = 0;
	row.ends = careful->active && ((step->progress && over) || step->stuck);
	row.marks &= !row.ends;
	row.out = row.marks || (waits && !survived && !row.ends);
	row.deaths.marked = row.marks ? row.batch == 1 : row.out && careful->deaths.marked;
	return row;
}

void careful_written(struct careful *careful, const struct careful_row *row)
{
	careful->deaths = row->deaths;
	careful->out = row->out;
	if (row->marks) {
		careful->read = false;
		careful->batch = row->batch;
		careful->gone += row->batch;
	}
	if (row->ends)
		careful->active = false;
	/* the next row may be long in coming; and one that outlived a renewal does not kill */
	if (!row->out)
		give_turn(careful);
}
