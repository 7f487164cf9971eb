/*
 * The local stores, on the same ids, through the public interface: batches of new ids, then the
 * same ids again.
 */
#include "bench_dedup.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "cleanup.h"
#include "clock.h"
#include "outbox_error.h"
#include "text.h"

enum { BATCH = BENCH_DEDUP_BATCH, DURABLE = 100000, ROOM = 64, DAY_MS = 86400000 };

struct batch {
	char texts[BATCH][ROOM];
	struct outbox_dedup_id ids[BATCH];
	enum outbox_dedup_state states[BATCH];
};

/*
 * The records' times are spread over the window, so that each slice gets its planned number of ids.
 */
static void name_batch_ids(
    struct batch *batch, enum bench_dedup_ids kind, int64_t first, int64_t ids)
{
	static const char *const forms[] = {
	    "%08llx-d9cb-469f-a165-%012llx", "%llu", "2:main:5eed5eed:0:7:1:%llu"};
	int64_t begin_ms = clock_wall_us() / 1000 - DAY_MS;

	for (int i = 0; i < BATCH; i++) {
		unsigned long long number = (unsigned long long)(first + i);
		int length = kind == IDS_TEXT
				 ? snprintf(batch->texts[i], ROOM, forms[kind],
				       (unsigned long long)(uint32_t)(number * 2654435761U), number)
				 : snprintf(batch->texts[i], ROOM, forms[kind], number);
		batch->ids[i] = (struct outbox_dedup_id){batch->texts[i], (size_t)length,
		    begin_ms + DAY_MS * (first + i) / ids, first + i};
	}
}

static int64_t count_new(const struct batch *batch)
{
	int64_t count = 0;
	for (int i = 0; i < BATCH; i++)
		count += batch->states[i] == OUTBOX_DEDUP_NEW;
	return count;
}

/* A lossy store takes some new ids for done ones, and these cannot be marked as done. */
static size_t keep_new(struct batch *batch)
{
	size_t kept = 0;
	for (size_t i = 0; i < BATCH; i++)
		if (batch->states[i] == OUTBOX_DEDUP_NEW)
			batch->ids[kept++] = batch->ids[i];
	return kept;
}

static bool add_new_ids(struct outbox_dedup *dedup, enum bench_dedup_ids kind, int64_t ids,
    struct bench_dedup_figures *figures, struct err *err)
{
	static struct batch batch;
	struct outbox_error error;

	for (int64_t first = 0; first < ids; first += BATCH) {
		name_batch_ids(&batch, kind, first, ids);
		int64_t begin = clock_us();
		if (!outbox_dedup_check(dedup, batch.ids, BATCH, batch.states, &error))
			return outbox_error_take(&error, err);
		int64_t middle = clock_us();
		size_t kept = keep_new(&batch);
		if (!outbox_dedup_done(dedup, batch.ids, kept, &error))
			return outbox_error_take(&error, err);
		/* durable now and then, as when a consumer commits; done_us includes it */
		if ((first + BATCH) % DURABLE == 0 &&
		    !outbox_dedup_checkpoint(dedup, first + BATCH, &error))
			return outbox_error_take(&error, err);
		figures->check_us += middle - begin;
		figures->done_us += clock_us() - middle;
		if (!bench_goes_on(err))
			return false;
	}
	return true;
}

static bool check_ids_again(struct outbox_dedup *dedup, enum bench_dedup_ids kind, int64_t ids,
    struct bench_dedup_figures *figures, struct err *err)
{
	static struct batch batch;
	struct outbox_error error;

	for (int64_t first = 0; first < ids; first += BATCH) {
		name_batch_ids(&batch, kind, first, ids);
		int64_t begin = clock_us();
		if (!outbox_dedup_check(dedup, batch.ids, BATCH, batch.states, &error))
			return outbox_error_take(&error, err);
		figures->again_us += clock_us() - begin;
		/* a store may take a new id for a done one, but never the other way round */
		if (count_new(&batch) > 0)
			return err_set(err, ERR_FATAL, "an id was forgotten");
		if (!bench_goes_on(err))
			return false;
	}
	return true;
}

bool bench_dedup_store(const char *line, enum bench_dedup_ids kind, int64_t ids,
    struct bench_dedup_figures *ret_figures, struct err *err)
{
	struct outbox_error error;
	*ret_figures = (struct bench_dedup_figures){0};
	struct outbox_dedup *dedup = outbox_dedup_open(line, &error);
	if (!dedup)
		return outbox_error_take(&error, err);
	bool good = add_new_ids(dedup, kind, ids, ret_figures, err) &&
		    check_ids_again(dedup, kind, ids, ret_figures, err);
	outbox_dedup_stats(dedup, &ret_figures->stats);
	outbox_dedup_close(dedup);
	return good;
}

/* --- local stores --------------------------------------------------------------------------- */

static const struct local {
	const char *line; /* ids and path are added */
	enum bench_dedup_ids kind;
	const char *name;  /* of its rows; NULL: the name of the store */
	double most_bytes; /* maximum bytes of memory per id; 0: not judged */
} locals[] = {
    {"bloom rate=0.1%", IDS_TEXT},
    {"exact", IDS_TEXT, .most_bytes = 40},
    {"counting lossy rate=0.1%", IDS_TEXT},
    {"counting lossy rate=0.1% counter=8", IDS_TEXT, "counting counter=8"},
    {"bitmap", IDS_INTEGER},
    {"bitmap window=24h", IDS_INTEGER, "bitmap window=24h"},
    {"bitmap lossy form=hash", IDS_TEXT},
    {"bitmap lossy form=hash window=24h slices=1", IDS_TEXT, "bitmap form=hash window=24h"},
    {"sequence", IDS_POSITION},
};

static void tell_store_figures(struct bench *bench, const struct local *local,
    const struct bench_dedup_figures *figures, int64_t ids)
{
	const char *store = local->name ? local->name : figures->stats.store;
	double many = (double)ids, memory = (double)figures->stats.memory_bytes / many;
	char names[4][80];

	snprintf(names[0], sizeof names[0], "%s: a new id, checked and done", store);
	snprintf(names[1], sizeof names[1], "%s: a copy of it, checked", store);
	snprintf(names[2], sizeof names[2], "%s: memory, an id", store);
	snprintf(names[3], sizeof names[3], "%s: disk, an id", store);
	bench_tell(
	    bench, names[0], "ns", (double)(figures->check_us + figures->done_us) * 1000 / many);
	bench_tell(bench, names[1], "ns", (double)figures->again_us * 1000 / many);
	if (local->most_bytes > 0)
		bench_judge(bench, names[2], "bytes", memory, '<', local->most_bytes);
	else
		bench_tell(bench, names[2], "bytes", memory);
	bench_tell(bench, names[3], "bytes", (double)figures->stats.disk_bytes / many);
}

static bool measure_local(struct bench *bench, const struct local *local, struct err *err)
{
	char path[256];
	struct bench_dedup_figures figures;
	int64_t ids = bench->options.ids / BATCH * BATCH;

	if (!bench_dedup_folder(path, sizeof path, err))
		return false;

	bool takes_ids = local->kind != IDS_POSITION;
	owned_text char *line =
	    takes_ids ? xformat("%s ids=%lld path=%s", local->line, (long long)ids, path)
		      : xformat("%s path=%s", local->line, path);
	bench_say("%s", line);
	bool good = bench_dedup_store(line, local->kind, ids, &figures, err);
	if (good)
		tell_store_figures(bench, local, &figures, ids);
	bench_dedup_remove(path);
	return good;
}

bool bench_dedup_stores(struct bench *bench, struct err *err)
{
	for (size_t i = 0; i < sizeof locals / sizeof *locals; i++)
		if (!measure_local(bench, &locals[i], err))
			return false;
	return true;
}
