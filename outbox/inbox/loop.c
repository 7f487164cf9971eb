/*
 * The thread of the inbox. run_turn lists the steps of a turn in their order; loop_partitions.c,
 * loop_reading.c, loop_items.c, loop_commits.c and loop_filters.c have the steps. [life] has the
 * calls of other threads.
 */
#include "loop.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include "claimer.h"
#include "clock.h"
#include "logging.h"
#include "loop_private.h"
#include "redelivery.h"
#include "reporter.h"
#include "subscription.h"
#include "text.h"
#include "worker_pool.h"

enum {
	LONGEST_WAIT_MS = 100,
	CLOSE_MS = 5000,
	TELL_MS = 10000, /* between two lines of the log about the same trouble */
};

void loop_tell(struct loop *loop, const char *event, const struct err *err)
{
	int64_t now = clock_ms();
	if (loop->told_at && loop->told == event && now - loop->told_at < TELL_MS)
		return;
	loop->told_at = now;
	loop->told = event;
	log_warn(event, {"group", LOG_TEXT(loop->settings->given.group)},
	    {"error", LOG_TEXT(err->message)});
}

void loop_fail(struct loop *loop, const struct err *err)
{
	pthread_mutex_lock(&loop->mutex);
	loop->why = *err;
	loop->ended = true;
	pthread_mutex_unlock(&loop->mutex);
	log_error("inbox_failed", {"group", LOG_TEXT(loop->settings->given.group)},
	    {"error", LOG_TEXT(err->message)},
	    {"consequence",
		LOG_TEXT("the inbox has ended; its messages go to other members of the group")});
}

void loop_trouble_until(struct loop *loop, int64_t *trouble_until, const struct err *err)
{
	*trouble_until = clock_ms() + AGAIN_MS;
	if (err->kind == ERR_CONFIG)
		loop_fail(loop, err);
	else if (err->kind != ERR_FATAL)
		loop_tell(loop, "inbox_waits", err);
	else if (!loop->again_at) {
		loop->again_at = *trouble_until;
		log_error("inbox_begins_again", {"group", LOG_TEXT(loop->settings->given.group)},
		    {"error", LOG_TEXT(err->message)},
		    {"consequence", LOG_TEXT("the partitions are opened again, from their files")});
	}
}

void loop_trouble(struct loop *loop, struct inbox_partition_store *store, const struct err *err)
{
	loop_trouble_until(loop, &store->trouble_until, err);
}

static bool is_trouble(int64_t trouble_until)
{
	return trouble_until && clock_ms() < trouble_until;
}

bool loop_is_in_trouble(const struct inbox_partition *assigned)
{
	return is_trouble(assigned->store->trouble_until);
}

bool loop_cannot_admit(const struct inbox_partition *assigned)
{
	return loop_is_in_trouble(assigned) || is_trouble(assigned->rules->trouble_until);
}

/* --- the thread ----------------------------------------------------------------------------- */

static void empty_eventfd(int fd)
{
	uint64_t count;
	(void)!read(fd, &count, sizeof count);
}

static int64_t next_time(const struct loop *loop, int64_t redelivery_at)
{
	int64_t at = timers_next(&loop->timers);
	at = loop->commit_at < at ? loop->commit_at : at;
	at = redelivery_at < at ? redelivery_at : at;
	int64_t wait = at - clock_ms();
	return wait < 0 ? 0 : wait > LONGEST_WAIT_MS ? LONGEST_WAIT_MS : wait;
}

static void wait_for_loop_work(struct loop *loop)
{
	struct pollfd fds[] = {{subscription_fd(loop->subscription), POLLIN, 0},
	    {loop->wake_fd, POLLIN, 0}, {redelivery_fd(loop->redelivery), POLLIN, 0}};
	struct item_list ended = worker_pool_ended(loop->workers, true);
	bool some = ended.first;
	for (struct item *item; (item = item_list_take(&ended));)
		loop_take_end(loop, item);
	if (some)
		return;
	poll(fds, 3, (int)next_time(loop, redelivery_step(loop->redelivery, clock_ms())));
	empty_eventfd(loop->wake_fd);
	empty_eventfd(fds[0].fd);
}

static void run_turn(struct loop *loop)
{
	loop->busy = false;
	loop->now_ms = clock_ms();

	loop_take_ends(loop);
	loop_take_redelivered(loop);
	loop_take_timers(loop);
	loop_take_claimed(loop);

	loop_apply_pauses(loop);
	loop_apply_rules(loop);
	loop_read_events(loop);
	if (loop_may_read(loop))
		loop_read_records(loop);

	loop_begin_again(loop);
	loop_see_to_late(loop);
	loop_admit(loop);

	loop_log_done(loop);
	loop_apply_stops(loop);
	loop_ask_coordinator(loop);

	worker_pool_hold_until(loop->workers, subscription_held_until(loop->subscription));
	if (loop->ready.first)
		worker_pool_offer(loop->workers, &loop->ready);
	if (loop->claiming.first)
		claimer_offer(loop->claimer, &loop->claiming);

	loop_flush_in_time(loop);
	loop_commit_in_time(loop);
	loop_show_figures(loop);

	if (!loop->busy)
		wait_for_loop_work(loop);
}

static struct subscription_settings subscription_settings_of(const struct loop *loop)
{
	const struct outbox_inbox_settings *given = &loop->settings->given;

	return (struct subscription_settings){&loop->settings->kafka, given->group, given->topics};
}

static struct subscription *create_subscription(struct loop *loop, struct err *err)
{
	const struct subscription_settings settings = subscription_settings_of(loop);
	const struct subscription_callbacks callbacks = {.assigned = loop_on_assigned,
	    .revoked = loop_on_revoked,
	    .out_of_range = loop_on_out_of_range,
	    .missing = loop_on_missing,
	    .not_committed = loop_on_not_committed,
	    .context = loop};

	return subscription_create(&settings, &callbacks, err);
}

static bool join_inbox_group(struct loop *loop, struct err *err)
{
	const struct subscription_settings settings = subscription_settings_of(loop);

	return subscription_join(loop->subscription, &settings, err);
}

/* Handlers end what they have, and offsets are committed. */
static void leave_inbox_group(struct loop *loop)
{
	subscription_close(loop->subscription);
	/* librdkafka revokes no partitions of a client that is broken for good. */
	loop_forget(loop);
}

/*
 * Replaces a client with former certificates. The new one is made first: should that fail, the old
 * one goes on. It joins the group after the old one has left it, since other members would wait for
 * the handlers of the old one otherwise.
 */
static void renew_subscription(struct loop *loop)
{
	struct err err;
	struct subscription *fresh;

	if (!subscription_is_stale(loop->subscription) || loop->now_ms < loop->renew_at)
		return;
	fresh = create_subscription(loop, &err);
	if (!fresh) {
		loop->renew_at = loop->now_ms + AGAIN_MS;
		loop_tell(loop, "inbox_waits", &err);
		return;
	}

	leave_inbox_group(loop);
	subscription_destroy(loop->subscription, CLOSE_MS);
	loop->subscription = fresh;
	if (!join_inbox_group(loop, &err))
		loop_fail(loop, &err);
}

/* False: it is to end. */
static bool begin_loop_turn(struct loop *loop)
{
	pthread_mutex_lock(&loop->mutex);
	bool goes_on = !loop->over && !loop->ended;
	loop->turn_ms = clock_ms();
	pthread_mutex_unlock(&loop->mutex);
	return goes_on;
}

static void *run_inbox_loop(void *context)
{
	struct loop *loop = context;
	pthread_setname_np(pthread_self(), "inbox");
	while (begin_loop_turn(loop)) {
		run_turn(loop);
		renew_subscription(loop);
	}

	leave_inbox_group(loop);
	loop_show_figures(loop);
	return NULL;
}

/* --- life ----------------------------------------------------------------------------------- */

static void free_loop(struct loop *loop)
{
	worker_pool_destroy(loop->workers);
	reporter_destroy(loop->reporter);
	claimer_destroy(loop->claimer); /* handlers need their claims until they return */
	redelivery_destroy(loop->redelivery);
	subscription_destroy(loop->subscription, CLOSE_MS);
	if (loop->wake_fd >= 0)
		close(loop->wake_fd);

	for (size_t i = 0; i < loop->paused_count; i++)
		free(loop->paused[i]);
	free(loop->paused);
	inbox_settings_free_rules(loop->new_rules);
	inbox_settings_free_rules(loop->next_rules);

	key_queues_finish(&loop->key_queues);
	item_pool_finish(&loop->pool);
	pthread_mutex_destroy(&loop->mutex);
	free(loop);
}

/* Claims for as many messages as handlers have, and for twice as many that come next: they are
 * claimed when a handler becomes free. Not for more, since other consumers may want the ids. */
static bool make_claimer(struct loop *loop, struct err *err)
{
	const struct outbox_inbox_settings *given = &loop->settings->given;
	const struct claimer_settings settings = {.line = given->claims,
	    .most = 3 * (size_t)given->concurrency + (size_t)given->batch,
	    .wake_fd = loop->wake_fd};
	if (!given->claims)
		return true;
	loop->claimer = claimer_create(&settings, err);
	return loop->claimer;
}

static bool make_reporter(struct loop *loop, struct err *err)
{
	const char *line = loop->settings->given.report;
	if (!line)
		return true;
	loop->reporter = reporter_create(line, loop->wake_fd, err);
	return loop->reporter;
}

static bool make_loop_parts(struct loop *loop, struct outbox_inbox *inbox, struct err *err)
{
	const struct outbox_inbox_settings *given = &loop->settings->given;
	const struct worker_pool_settings workers = {.handle = given->handle,
	    .context = given->context,
	    .inbox = inbox,
	    .threads = given->threads,
	    .most = given->concurrency,
	    .batch = given->batch,
	    .wake_fd = loop->wake_fd};

	if (!make_claimer(loop, err) || !make_reporter(loop, err))
		return false;
	loop->redelivery = redelivery_create(&loop->settings->kafka, given->group);
	loop->workers = worker_pool_create(&workers, err);
	loop->subscription = loop->workers ? create_subscription(loop, err) : NULL;
	return loop->subscription && join_inbox_group(loop, err);
}

struct loop *loop_create(
    struct inbox_settings *settings, struct outbox_inbox *inbox, struct err *err)
{
	struct loop *loop = xcalloc(1, sizeof *loop);

	loop->settings = settings;
	loop->seed = (uint64_t)clock_random();
	key_queues_init(&loop->key_queues, settings->given.most_messages);
	pthread_mutex_init(&loop->mutex, NULL);
	loop->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (loop->wake_fd < 0)
		err_set(err, ERR_RETRY, "no eventfd for an inbox: %s", strerror(errno));
	else if (make_loop_parts(loop, inbox, err))
		return loop;
	free_loop(loop);
	return NULL;
}

bool loop_start(struct loop *loop, struct err *err)
{
	loop->turn_ms = clock_ms();
	loop->runs = pthread_create(&loop->thread, NULL, run_inbox_loop, loop) == 0;
	return loop->runs || err_set(err, ERR_RETRY, "no thread for an inbox");
}

static void wake_loop(struct loop *loop)
{
	(void)!write(loop->wake_fd, &(uint64_t){1}, sizeof(uint64_t));
}

void loop_destroy(struct loop *loop)
{
	if (!loop)
		return;
	pthread_mutex_lock(&loop->mutex);
	loop->over = true;
	pthread_mutex_unlock(&loop->mutex);
	wake_loop(loop);
	if (loop->runs)
		pthread_join(loop->thread, NULL);
	free_loop(loop);
}

bool loop_finish(
    struct loop *loop, const struct outbox_inbox_end *ends, size_t count, struct err *err)
{
	return worker_pool_finish(loop->workers, ends, count, err);
}

bool loop_holds(struct loop *loop, uint64_t ticket)
{
	return worker_pool_holds(loop->workers, ticket);
}

/* The list has a topic once; "" removes all others. */
static void set_paused(struct loop *loop, const char *topic, bool pause)
{
	size_t kept = 0;

	for (size_t i = 0; i < loop->paused_count; i++)
		if (!topic[0] || text_equal(loop->paused[i], topic))
			free(loop->paused[i]);
		else
			loop->paused[kept++] = loop->paused[i];
	loop->paused = xrealloc(loop->paused, (kept + 1) * sizeof *loop->paused);
	if (pause)
		loop->paused[kept++] = xstrdup(topic);
	loop->paused_count = kept;
	loop->pauses_changed = true;
	loop->resumed |= !pause;
}

void loop_pause(struct loop *loop, const char *topic, bool pause)
{
	pthread_mutex_lock(&loop->mutex);
	set_paused(loop, topic ? topic : "", pause);
	pthread_mutex_unlock(&loop->mutex);
	wake_loop(loop);
}

void loop_change_rules(struct loop *loop, const char *const *rules)
{
	char **copies = inbox_settings_copy_rules(rules);

	pthread_mutex_lock(&loop->mutex);
	inbox_settings_free_rules(loop->new_rules);
	loop->new_rules = copies;
	pthread_mutex_unlock(&loop->mutex);
	wake_loop(loop);
}

void loop_stats(struct loop *loop, struct outbox_inbox_stats *ret_stats)
{
	pthread_mutex_lock(&loop->mutex);
	*ret_stats = loop->shown;
	/* A loop that has ended turns no more, and is not stalled. */
	ret_stats->turn_ms = loop->over || loop->ended ? 0 : clock_ms() - loop->turn_ms;
	pthread_mutex_unlock(&loop->mutex);
}

bool loop_works(struct loop *loop, struct err *err)
{
	pthread_mutex_lock(&loop->mutex);
	bool works = !loop->ended;
	if (!works && err)
		*err = loop->why;
	pthread_mutex_unlock(&loop->mutex);
	return works;
}
