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

static struct hands *begin(int *ret_fd)
{
	struct err err;
	*ret_fd = eventfd(0, EFD_CLOEXEC);
	const struct hands_settings settings = {
	    .handle = handle, .threads = 1, .most = 4, .batch = 1, .wake_fd = *ret_fd};
	struct hands *hands = hands_create(&settings, &err);
	assert_non_null(hands);
	atomic_store(&handed, 0);
	return hands;
}

static struct item *offer(struct hands *hands)
{
	struct item *item = xcalloc(1, sizeof *item);
	struct item_list list = {0};
	item->assigned = some_partition;
	item_move(item, ITEM_READY);
	item_list_add(&list, item);
	hands_offer(hands, &list);
	return item;
}

static uint64_t wait_handed(void)
{
	while (!atomic_load(&handed))
		poll(NULL, 0, 1);
	return atomic_load(&handed);
}

static void end(struct hands *hands, int fd)
{
	hands_destroy(hands);
	close(fd);
}

static void nothing_is_handed_out_or_held_beyond_the_moment(void **state)
{
	(void)state;
	int fd;
	struct hands *hands = begin(&fd);
	hands_hold_until(hands, clock_ms());
	offer(hands);
	assert_int_equal(hands_in_hand(hands), 0);
	hands_hold_until(hands, INT64_MAX);
	uint64_t ticket = wait_handed();
	assert_true(hands_holds(hands, ticket));
	assert_false(hands_holds(hands, ticket + (1 << 20)));
	hands_hold_until(hands, clock_ms());
	assert_false(hands_holds(hands, ticket));
	hands_hold_until(hands, INT64_MAX);
	assert_true(hands_holds(hands, ticket));
	end(hands, fd);
}

static void what_was_taken_away_is_not_held_and_counted_once(void **state)
{
	(void)state;
	int fd;
	struct err err;
	struct hands *hands = begin(&fd);
	hands_hold_until(hands, INT64_MAX);
	offer(hands);
	uint64_t ticket = wait_handed();
	assert_int_equal(hands_abandon(hands), 1);
	assert_int_equal(hands_abandon(hands), 0);
	assert_false(hands_holds(hands, ticket));
	const struct outbox_inbox_end one = {.ticket = ticket};
	assert_false(hands_finish(hands, &one, 1, &err));
	assert_int_equal(err.kind, ERR_FENCED);
	assert_false(hands_holds(hands, ticket));
	assert_null(hands_ended(hands, false).first);
	end(hands, fd);
}

/* The loop may still meet the message in its key queue. */
static void what_was_taken_away_stays_where_it_is_until_it_is_forgotten(void **state)
{
	(void)state;
	int fd;
	struct err err;
	struct hands *hands = begin(&fd);
	hands_hold_until(hands, INT64_MAX);
	struct item *item = offer(hands);
	const struct outbox_inbox_end one = {.ticket = wait_handed()};
	assert_int_equal(hands_abandon(hands), 1);
	assert_false(hands_finish(hands, &one, 1, &err));
	assert_int_equal(item->public.ticket, one.ticket); /* the sanitizer looks on */
	hands_forget(hands);
	end(hands, fd);
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
