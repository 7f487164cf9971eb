#include "worker_pool.h"

#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cmocka.h>

#include "clock.h"
#include "text.h"

static struct inbox_partition *const some_partition =
    (struct inbox_partition *)&some_partition; /* is not looked into */
static _Atomic uint64_t handed;                /* the ticket; 0: none yet */

static void handle(void *context, struct outbox_inbox *inbox,
    const struct outbox_inbox_message *const *messages, size_t count)
{
	(void)context, (void)inbox;
	assert_int_equal(count, 1);
	atomic_store(&handed, messages[0]->ticket);
}

static struct worker_pool *begin(int *ret_fd)
{
	struct err err;
	*ret_fd = eventfd(0, EFD_CLOEXEC);
	const struct worker_pool_settings settings = {
	    .handle = handle, .threads = 1, .most = 4, .batch = 1, .wake_fd = *ret_fd};
	struct worker_pool *pool = worker_pool_create(&settings, &err);
	assert_non_null(pool);
	atomic_store(&handed, 0);
	return pool;
}

static struct item *offer(struct worker_pool *pool)
{
	struct item *item = xcalloc(1, sizeof *item);
	struct item_list list = {0};
	item->assigned = some_partition;
	item_move(item, ITEM_READY);
	item_list_add(&list, item);
	worker_pool_offer(pool, &list);
	return item;
}

static uint64_t wait_handed(void)
{
	while (!atomic_load(&handed))
		poll(NULL, 0, 1);
	return atomic_load(&handed);
}

static void end(struct worker_pool *pool, int fd)
{
	worker_pool_destroy(pool);
	close(fd);
}

static void nothing_is_handed_out_or_held_beyond_the_moment(void **state)
{
	(void)state;
	int fd;
	struct worker_pool *pool = begin(&fd);
	worker_pool_hold_until(pool, clock_ms());
	offer(pool);
	assert_int_equal(worker_pool_in_progress(pool), 0);
	worker_pool_hold_until(pool, INT64_MAX);
	uint64_t ticket = wait_handed();
	assert_true(worker_pool_holds(pool, ticket));
	assert_false(worker_pool_holds(pool, ticket + (1 << 20)));
	worker_pool_hold_until(pool, clock_ms());
	assert_false(worker_pool_holds(pool, ticket));
	worker_pool_hold_until(pool, INT64_MAX);
	assert_true(worker_pool_holds(pool, ticket));
	end(pool, fd);
}

static void what_was_taken_away_is_not_held_and_counted_once(void **state)
{
	(void)state;
	int fd;
	struct err err;
	struct worker_pool *pool = begin(&fd);
	worker_pool_hold_until(pool, INT64_MAX);
	offer(pool);
	uint64_t ticket = wait_handed();
	assert_int_equal(worker_pool_abandon(pool), 1);
	assert_int_equal(worker_pool_abandon(pool), 0);
	assert_false(worker_pool_holds(pool, ticket));
	const struct outbox_inbox_end one = {.ticket = ticket};
	assert_false(worker_pool_finish(pool, &one, 1, &err));
	assert_int_equal(err.kind, ERR_FENCED);
	assert_false(worker_pool_holds(pool, ticket));
	assert_null(worker_pool_ended(pool, false).first);
	end(pool, fd);
}

/* The loop may still meet the message in its key queue. */
static void what_was_taken_away_stays_where_it_is_until_it_is_forgotten(void **state)
{
	(void)state;
	int fd;
	struct err err;
	struct worker_pool *pool = begin(&fd);
	worker_pool_hold_until(pool, INT64_MAX);
	struct item *item = offer(pool);
	const struct outbox_inbox_end one = {.ticket = wait_handed()};
	assert_int_equal(worker_pool_abandon(pool), 1);
	assert_false(worker_pool_finish(pool, &one, 1, &err));
	assert_int_equal(item->public.ticket, one.ticket); /* the sanitizer looks on */
	worker_pool_forget(pool);
	end(pool, fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(nothing_is_handed_out_or_held_beyond_the_moment),
	    cmocka_unit_test(what_was_taken_away_is_not_held_and_counted_once),
	    cmocka_unit_test(what_was_taken_away_stays_where_it_is_until_it_is_forgotten),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
