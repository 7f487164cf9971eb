#include "dedup_ahead.h"

static void *prepare_slice(void *context)
{
	struct dedup_ahead *ahead = context;
	struct err err; /* ignored: the owner opens the slice itself, and sees the error */
	for (int i = 0; i < ahead->gone_count; i++)
		dedup_slice_remove(&ahead->gone[i], ahead->folder);
	ahead->gone_count = 0;
	if (!dedup_slice_open(&ahead->slice, ahead->folder, &ahead->plan, &err))
		ahead->slice = (struct dedup_slice){0};
	else
		dedup_slice_touch(&ahead->slice);
	return NULL;
}

static void join_ahead_thread(struct dedup_ahead *ahead)
{
	if (ahead->running)
		pthread_join(ahead->thread, NULL);
	ahead->running = false;
}

void dedup_ahead_init(struct dedup_ahead *ahead, int folder)
{
	*ahead = (struct dedup_ahead){.folder = folder};
}

void dedup_ahead_finish(struct dedup_ahead *ahead)
{
	join_ahead_thread(ahead);
	if (ahead->slice.log)
		dedup_slice_remove(&ahead->slice, ahead->folder);
}

void dedup_ahead_begin(struct dedup_ahead *ahead, const struct dedup_slice_plan *plan,
    const struct dedup_slice *gone, int count)
{
	join_ahead_thread(ahead);
	for (int i = 0; i < count; i++)
		ahead->gone[ahead->gone_count++] = gone[i];
	if (ahead->slice.log)
		ahead->gone[ahead->gone_count++] = ahead->slice;
	ahead->slice = (struct dedup_slice){0};
	ahead->plan = *plan;
	ahead->running = pthread_create(&ahead->thread, NULL, prepare_slice, ahead) == 0;
	if (!ahead->running)
		prepare_slice(ahead);
}

uint64_t dedup_ahead_ids(const struct dedup_ahead *ahead)
{
	return ahead->plan.ids;
}

bool dedup_ahead_has(const struct dedup_ahead *ahead, int64_t number, int sub)
{
	return (ahead->running || ahead->slice.log) && ahead->plan.head.slice == number &&
	       ahead->plan.head.sub == sub;
}

/* Is another slice ready, or being made, that can be renamed? */
static bool is_other(const struct dedup_ahead *ahead, int sub)
{
	return sub == 0 && (ahead->running || ahead->slice.log) && ahead->plan.head.sub == 0;
}

bool dedup_ahead_take(
    struct dedup_ahead *ahead, int64_t number, int sub, struct dedup_slice *ret_slice)
{
	struct err err; /* ignored: the caller opens the slice itself, and sees the error */
	bool wanted = dedup_ahead_has(ahead, number, sub), other = !wanted && is_other(ahead, sub);
	join_ahead_thread(ahead);
	if ((!wanted && !other) || !ahead->slice.log)
		return false;
	*ret_slice = ahead->slice;
	ahead->slice = (struct dedup_slice){0};
	return wanted || dedup_slice_rename(ret_slice, ahead->folder, number, &err);
}
