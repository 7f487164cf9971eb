#include "dedup_conformance.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "dedup_walk.h"

struct subject {
	const struct dedup_conformance *store;
	struct outbox_dedup *dedup;
	uint64_t next; /* id that was not used yet */
	uint64_t many;
};

static void must(bool good, const struct outbox_error *error, const char *what)
{
	if (!good)
		fail_msg("%s: %s", what, error->message);
}

static enum outbox_dedup_state check(struct outbox_dedup *dedup, uint64_t number)
{
	struct dedup_walk_id sample;
	struct outbox_error error;
	enum outbox_dedup_state state;
	dedup_walk_name(&sample, number, -1);
	must(outbox_dedup_check(dedup, &sample.id, 1, &state, &error), &error, "check");
	return state;
}

static void done(struct outbox_dedup *dedup, uint64_t number)
{
	struct dedup_walk_id sample;
	struct outbox_error error;
	dedup_walk_name(&sample, number, -1);
	must(outbox_dedup_done(dedup, &sample.id, 1, &error), &error, "done");
}

static bool try_release(struct outbox_dedup *dedup, uint64_t number, struct outbox_error *error)
{
	struct dedup_walk_id sample;
	dedup_walk_name(&sample, number, -1);
	return outbox_dedup_release(dedup, &sample.id, 1, error);
}

static void release(struct outbox_dedup *dedup, uint64_t number)
{
	struct outbox_error error;
	must(try_release(dedup, number, &error), &error, "release");
}

/* --- what holds ----------------------------------------------------------------------------- */

static void an_id_is_new_then_pending_then_done(struct subject *subject)
{
	uint64_t id = subject->next++;
	struct outbox_dedup *dedup = subject->dedup;
	assert_int_equal(check(dedup, id), OUTBOX_DEDUP_NEW);
	assert_int_equal(check(dedup, id), OUTBOX_DEDUP_PENDING);
	assert_int_equal(dedup_walk_stats(dedup).pending, 1);
	done(dedup, id);
	assert_int_equal(dedup_walk_stats(dedup).pending, 0);
	assert_int_equal(check(dedup, id), OUTBOX_DEDUP_DONE);
	assert_int_equal(check(dedup, id), OUTBOX_DEDUP_DONE);
}

static void what_failed_is_new_again(struct subject *subject)
{
	uint64_t id = subject->next++;
	assert_int_equal(check(subject->dedup, id), OUTBOX_DEDUP_NEW);
	release(subject->dedup, id);
	assert_int_equal(check(subject->dedup, id), OUTBOX_DEDUP_NEW);
	done(subject->dedup, id);
	assert_int_equal(check(subject->dedup, id), OUTBOX_DEDUP_DONE);
}

static const struct outbox_dedup_promise *promise_of(const struct subject *subject)
{
	const char *kind = dedup_walk_stats(subject->dedup).store;
	const struct outbox_dedup_promise *promise;
	for (int i = 0; (promise = outbox_dedup_promise(i)); i++)
		if (strcmp(promise->store, kind) == 0)
			return promise;
	fail_msg("'%s' promises nothing", kind);
	return NULL;
}

static void what_is_done_is_released_where_the_store_can(struct subject *subject)
{
	uint64_t id = subject->next++;
	struct outbox_error error;
	assert_int_equal(check(subject->dedup, id), OUTBOX_DEDUP_NEW);
	done(subject->dedup, id);
	bool released = try_release(subject->dedup, id, &error);
	assert_int_equal(released, promise_of(subject)->releases);
	if (released)
		assert_int_equal(check(subject->dedup, id), OUTBOX_DEDUP_NEW);
	else
		assert_int_equal(error.kind, OUTBOX_REJECT);
	if (released)
		release(subject->dedup, id);
	else
		assert_int_equal(check(subject->dedup, id), OUTBOX_DEDUP_DONE);
}

static void two_copies_in_a_batch_are_one(struct subject *subject)
{
	struct dedup_walk_id samples[3];
	struct outbox_dedup_id ids[6];
	enum outbox_dedup_state states[6];
	struct outbox_error error;
	for (int i = 0; i < 3; i++)
		dedup_walk_name(&samples[i], subject->next++, -1);
	for (int i = 0; i < 6; i++)
		ids[i] = samples[i % 3].id;
	must(outbox_dedup_check(subject->dedup, ids, 6, states, &error), &error, "check");
	for (int i = 0; i < 6; i++)
		assert_int_equal(states[i], i < 3 ? OUTBOX_DEDUP_NEW : OUTBOX_DEDUP_PENDING);
	must(outbox_dedup_done(subject->dedup, ids, 2, &error), &error, "done");
	must(outbox_dedup_release(subject->dedup, ids + 2, 1, &error), &error, "release");
	must(outbox_dedup_check(subject->dedup, ids, 6, states, &error), &error, "check");
	for (int i = 0; i < 6; i++)
		assert_int_equal(states[i], i % 3 < 2 ? OUTBOX_DEDUP_DONE
					    : i < 3   ? OUTBOX_DEDUP_NEW
						      : OUTBOX_DEDUP_PENDING);
	must(outbox_dedup_release(subject->dedup, ids + 2, 1, &error), &error, "release");
}

static void nothing_is_asked_of_an_empty_batch(struct subject *subject)
{
	struct outbox_error error;
	must(outbox_dedup_check(subject->dedup, NULL, 0, NULL, &error), &error, "check");
	must(outbox_dedup_done(subject->dedup, NULL, 0, &error), &error, "done");
	must(outbox_dedup_release(subject->dedup, NULL, 0, &error), &error, "release");
}

static void only_what_is_pending_can_be_done(struct subject *subject)
{
	struct dedup_walk_id sample;
	struct outbox_error error;
	dedup_walk_name(&sample, subject->next++, -1);
	assert_false(outbox_dedup_done(subject->dedup, &sample.id, 1, &error));
	assert_int_equal(error.kind, OUTBOX_REJECT);
	assert_int_equal(check(subject->dedup, subject->next - 1), OUTBOX_DEDUP_NEW);
	release(subject->dedup, subject->next - 1);
}

/* None of the row is pending afterwards, not even those before the bad one. */
static void expect_refused(struct subject *subject, const void *id, size_t length)
{
	struct dedup_walk_id sample;
	struct outbox_error error;
	enum outbox_dedup_state states[2];
	dedup_walk_name(&sample, subject->next++, -1);
	struct outbox_dedup_id ids[2] = {sample.id, {id, length, -1, -1}};
	assert_false(outbox_dedup_check(subject->dedup, ids, 2, states, &error));
	assert_int_equal(error.kind, OUTBOX_REJECT);
	assert_non_null(strstr(error.message, "id 2"));
	assert_int_equal(dedup_walk_stats(subject->dedup).pending, 0);
}

static void a_bad_id_is_refused(struct subject *subject)
{
	char *large = calloc(1, 1 << 20);
	expect_refused(subject, "", 0);
	expect_refused(subject, large, 1 << 20);
	expect_refused(subject, large, OUTBOX_DEDUP_ID_MAX + 1);
	free(large);
}

static void check_bytes(
    struct subject *subject, const void *id, size_t length, enum outbox_dedup_state expected)
{
	struct outbox_dedup_id bytes = {id, length, -1, -1};
	struct outbox_error error;
	enum outbox_dedup_state state;
	must(outbox_dedup_check(subject->dedup, &bytes, 1, &state, &error), &error, "check");
	assert_int_equal(state, expected);
	if (state == OUTBOX_DEDUP_NEW)
		must(outbox_dedup_done(subject->dedup, &bytes, 1, &error), &error, "done");
}

static void ids_are_bytes(struct subject *subject)
{
	char large[OUTBOX_DEDUP_ID_MAX];
	if (subject->store->integers)
		return;
	memset(large, '\xff', sizeof large);
	for (int i = 0; i < 2; i++) {
		enum outbox_dedup_state expected = i ? OUTBOX_DEDUP_DONE : OUTBOX_DEDUP_NEW;
		check_bytes(subject, "a\0b", 3, expected);
		check_bytes(subject, "a\0c", 3, expected);
		check_bytes(subject, "a", 1, expected);
		check_bytes(subject, "\0", 1, expected);
		check_bytes(subject, "\0\0", 2, expected);
		check_bytes(subject, "\xff\xfe 'quoted' \\ \"x\"\r\n*", 19, expected);
		check_bytes(subject, large, sizeof large, expected);
		check_bytes(subject, large, sizeof large - 1, expected);
	}
}

static void many_are_remembered_and_no_others(struct subject *subject)
{
	uint64_t first = subject->next;
	subject->next += 2 * subject->many;
	uint64_t least = (uint64_t)(subject->many - subject->store->most_false);
	assert_in_range(
	    dedup_walk(subject->dedup, first, subject->many, -1, true), least, subject->many);
	assert_int_equal(dedup_walk(subject->dedup, first, subject->many, -1, true), 0);
	assert_in_range(dedup_walk(subject->dedup, first + subject->many, subject->many, -1, false),
	    least, subject->many);
	dedup_walk_checkpoint(subject->dedup, (int64_t)subject->next);
}

static void a_restart_forgets_what_was_pending_only(struct subject *subject)
{
	uint64_t first = subject->next - 2 * subject->many, pending = subject->next++;
	assert_int_equal(check(subject->dedup, pending), OUTBOX_DEDUP_NEW);
	dedup_walk_checkpoint(subject->dedup, -1);
	outbox_dedup_close(subject->dedup);
	subject->dedup = dedup_walk_open(subject->store->line);
	if (!subject->store->remembers)
		return;
	assert_int_equal(dedup_walk(subject->dedup, first, subject->many, -1, true), 0);
	if (!subject->store->shared) /* where a lease may go on */
		assert_int_equal(check(subject->dedup, pending), OUTBOX_DEDUP_NEW);
}

static void another_handle_sees_what_is_pending_and_done(struct subject *subject)
{
	uint64_t id = subject->next++;
	if (!subject->store->shared)
		return;
	struct outbox_dedup *other = dedup_walk_open(subject->store->line);
	assert_int_equal(check(subject->dedup, id), OUTBOX_DEDUP_NEW);
	assert_int_equal(check(other, id), OUTBOX_DEDUP_PENDING);
	release(subject->dedup, id);
	assert_int_equal(check(other, id), OUTBOX_DEDUP_NEW);
	assert_int_equal(check(subject->dedup, id), OUTBOX_DEDUP_PENDING);
	done(other, id);
	assert_int_equal(check(subject->dedup, id), OUTBOX_DEDUP_DONE);
	outbox_dedup_close(other);
}

static void figures_count_what_was_found(struct subject *subject)
{
	struct outbox_dedup_stats before = dedup_walk_stats(subject->dedup);
	uint64_t id = subject->next++;
	check(subject->dedup, id);
	check(subject->dedup, id);
	done(subject->dedup, id);
	check(subject->dedup, id);
	struct outbox_dedup_stats after = dedup_walk_stats(subject->dedup);
	assert_int_equal(after.found_new - before.found_new, 1);
	assert_int_equal(after.found_pending - before.found_pending, 1);
	assert_int_equal(after.found_done - before.found_done, 1);
}

void dedup_conform(const struct dedup_conformance *store)
{
	static void (*const rules[])(struct subject * subject) = {
	    an_id_is_new_then_pending_then_done, what_failed_is_new_again,
	    what_is_done_is_released_where_the_store_can, two_copies_in_a_batch_are_one,
	    nothing_is_asked_of_an_empty_batch, only_what_is_pending_can_be_done,
	    a_bad_id_is_refused, ids_are_bytes, many_are_remembered_and_no_others,
	    a_restart_forgets_what_was_pending_only, another_handle_sees_what_is_pending_and_done,
	    figures_count_what_was_found};
	dedup_walk_prefix = store->prefix ? store->prefix : "";
	struct subject subject = {.store = store,
	    .dedup = dedup_walk_open(store->line),
	    .next = 1,
	    .many = store->many ? (uint64_t)store->many : 10000};
	for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
		rules[i](&subject);
	outbox_dedup_close(subject.dedup);
	dedup_walk_prefix = "";
}
