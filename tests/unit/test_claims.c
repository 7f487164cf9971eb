#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "claims.h"
#include "claims_store.h"
#include "cleanup.h"
#include "clock.h"
#include "dedup.h"
#include "text.h"

_Static_assert((int)CLAIMS_ID_MOST == (int)OUTBOX_DEDUP_ID_MAX, "an id of dedup can be claimed");

/* --- a store in memory, which does what a test says ----------------------------------------- */

enum { MOST = 3000, LEASE_MS = 1000 };

static struct {
	pthread_mutex_t lock;
	char ids[MOST][16];
	int64_t tokens[MOST];
	int count;
	int64_t next;
} world = {.lock = PTHREAD_MUTEX_INITIALIZER};
static atomic_bool silent; /* it does not answer */
static atomic_int renewals;
static atomic_int answer_ms;    /* an answer takes so long */
static atomic_llong renewed_at; /* when the last renewal that was answered was asked for */

static struct claims_store *open_fake(const struct claims_spec *spec, struct err *err)
{
	(void)spec;
	(void)err;
	return xmalloc(1);
}

static void close_fake(struct claims_store *store)
{
	free(store);
}

static bool answers(struct err *err)
{
	nanosleep(&(struct timespec){answer_ms / 1000, answer_ms % 1000 * 1000000L}, NULL);
	return !silent || err_set(err, ERR_RETRY, "no answer");
}

static int find(const void *id, size_t length)
{
	for (int i = 0; i < world.count; i++)
		if (strlen(world.ids[i]) == length && memcmp(world.ids[i], id, length) == 0)
			return i;
	return -1;
}

static bool take_fake(
    struct claims_store *store, struct claims_id *ids, size_t count, struct err *err)
{
	(void)store;
	if (!answers(err))
		return false;
	pthread_mutex_lock(&world.lock);
	for (size_t i = 0; i < count; i++) {
		int place = find(ids[i].id, ids[i].length);
		ids[i].token = 0;
		if (place >= 0)
			continue;
		place = world.count++;
		memset(world.ids[place], 0, sizeof *world.ids);
		memcpy(world.ids[place], ids[i].id, ids[i].length);
		ids[i].token = world.tokens[place] = ++world.next;
	}
	pthread_mutex_unlock(&world.lock);
	return true;
}

static bool renew_fake(struct claims_store *store, const struct claims_id *ids, size_t count,
    bool *ret_held, struct err *err)
{
	(void)store;
	int64_t asked_at = clock_ms();
	renewals++;
	if (!answers(err))
		return false;
	renewed_at = asked_at;
	pthread_mutex_lock(&world.lock);
	for (size_t i = 0; i < count; i++) {
		int place = find(ids[i].id, ids[i].length);
		ret_held[i] = place >= 0 && world.tokens[place] == ids[i].token;
	}
	pthread_mutex_unlock(&world.lock);
	return true;
}

static void forget(int place)
{
	world.count--;
	memcpy(world.ids[place], world.ids[world.count], sizeof *world.ids);
	world.tokens[place] = world.tokens[world.count];
}

static bool release_fake(struct claims_store *store, const struct claims_id *ids, size_t count,
    bool *ret_held, struct err *err)
{
	(void)store;
	if (!answers(err))
		return false;
	pthread_mutex_lock(&world.lock);
	for (size_t i = 0; i < count; i++) {
		int place = find(ids[i].id, ids[i].length);
		ret_held[i] = place >= 0 && world.tokens[place] == ids[i].token;
		if (ret_held[i])
			forget(place);
	}
	pthread_mutex_unlock(&world.lock);
	return true;
}

static const struct claims_store_type fake = {.open = open_fake,
    .close = close_fake,
    .take = take_fake,
    .renew = renew_fake,
    .release = release_fake};

static int begin_with(void **state, int64_t lease_ms)
{
	struct err err;
	const struct claims_spec spec = {.type = &fake, .lease_ms = lease_ms};
	world.count = 0;
	silent = false;
	answer_ms = 0;
	renewed_at = 0;
	*state = claims_open(&spec, &err);
	return *state ? 0 : -1;
}

static int begin(void **state)
{
	return begin_with(state, LEASE_MS);
}

/* Time for a sanitizer to look through a list in memory, thousands of times. */
static int begin_many(void **state)
{
	return begin_with(state, 6 * LEASE_MS);
}

static int end(void **state)
{
	outbox_claims_close(*state);
	return 0;
}

/* --- what holds ----------------------------------------------------------------------------- */

static bool take(struct outbox_claims *claims, const char *id, struct outbox_claim *ret_claim)
{
	struct outbox_error error;
	bool taken;
	if (!outbox_claims_take(claims, id, strlen(id), ret_claim, &taken, &error))
		fail_msg("%s", error.message);
	return taken;
}

static bool is_held(struct outbox_claims *claims, const struct outbox_claim *claim)
{
	struct outbox_error error;
	bool held = outbox_claims_check(claims, claim, &error);
	assert_true(held || error.kind == OUTBOX_FENCED);
	return held;
}

static void rest(void)
{
	nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

static void wait_for_renewals(int count)
{
	for (int wanted = renewals + count; renewals < wanted;)
		rest();
}

/* Until it is; it must not take longer than twice the lease, and a while for a slow machine. */
static void wait_for_loss(struct outbox_claims *claims, const struct outbox_claim *claim)
{
	for (int64_t until = clock_ms() + 2 * LEASE_MS + 5000; is_held(claims, claim);) {
		assert_true(clock_ms() < until);
		rest();
	}
}

static void an_id_is_had_by_one_and_its_token_rises(void **state)
{
	struct outbox_error error;
	struct outbox_claim first, second, other;
	assert_true(take(*state, "a", &first));
	assert_false(take(*state, "a", &second));
	assert_true(take(*state, "b", &other));
	assert_true(is_held(*state, &first));
	assert_true(outbox_claims_release(*state, &first, &error));
	assert_true(take(*state, "a", &second));
	assert_true(second.token > first.token);
	assert_false(outbox_claims_check(*state, &first, &error));
	assert_int_equal(error.kind, OUTBOX_REJECT);
	assert_false(outbox_claims_release(*state, &first, &error));
	assert_int_equal(error.kind, OUTBOX_REJECT);
}

static void a_claim_is_renewed_while_it_is_held(void **state)
{
	struct outbox_claim claims[3];
	int64_t begin_ms = clock_ms();
	assert_true(take(*state, "a", &claims[0]) && take(*state, "b", &claims[1]));
	wait_for_renewals(9);
	assert_true(clock_ms() - begin_ms > 2 * LEASE_MS); /* at a third of the lease each */
	assert_true(take(*state, "c", &claims[2]));
	wait_for_renewals(3);
	for (int i = 0; i < 3; i++)
		assert_true(is_held(*state, &claims[i]));
}

static void many_are_renewed_in_rounds(void **state)
{
	struct outbox_claim claims[2500];
	char id[16];
	for (int i = 0; i < 2500; i++) {
		snprintf(id, sizeof id, "%d", i);
		assert_true(take(*state, id, &claims[i]));
	}
	wait_for_renewals(6);
	for (int i = 0; i < 2500; i++)
		assert_true(is_held(*state, &claims[i]));
}

static void what_somebody_else_has_is_told_to_who_lost_it(void **state)
{
	struct outbox_error error;
	struct outbox_claim claim, other;
	assert_true(take(*state, "a", &claim) && take(*state, "b", &other));
	pthread_mutex_lock(&world.lock);
	world.tokens[find("a", 1)] = 99;
	pthread_mutex_unlock(&world.lock);
	wait_for_loss(*state, &claim);
	assert_true(is_held(*state, &other));
	assert_false(outbox_claims_release(*state, &claim, &error));
	assert_int_equal(error.kind, OUTBOX_FENCED);
	pthread_mutex_lock(&world.lock);
	assert_int_equal(world.tokens[find("a", 1)], 99); /* it is not taken from its new owner */
	pthread_mutex_unlock(&world.lock);
}

static void who_cannot_renew_has_lost_it_at_the_lease_s_end(void **state)
{
	struct outbox_error error;
	struct outbox_claim claim, late;
	bool taken;
	assert_true(take(*state, "a", &claim));
	silent = true;
	assert_false(outbox_claims_take(*state, "b", 1, &late, &taken, &error));
	assert_int_equal(error.kind, OUTBOX_RETRY);
	wait_for_loss(*state, &claim);
	silent = false;
	wait_for_renewals(0);
	assert_false(is_held(*state, &claim)); /* for good: who was told so has stopped */
	assert_false(outbox_claims_release(*state, &claim, &error));
	assert_int_equal(error.kind, OUTBOX_FENCED);
	assert_true(take(*state, "a", &late));
}

static void a_lease_that_was_taken_counts_from_before_the_request(void **state)
{
	struct outbox_claim claim;
	answer_ms = LEASE_MS;
	assert_true(take(*state, "order-1", &claim));
	assert_false(is_held(*state, &claim));
	answer_ms = 0;
}

static void take_again(struct outbox_claims *claims, struct outbox_claim *ret_claim)
{
	static int times;
	char id[16];
	snprintf(id, sizeof id, "again-%d", times++);
	assert_true(take(claims, id, ret_claim));
}

static void a_lease_that_was_renewed_counts_from_before_the_request(void **state)
{
	struct outbox_claim claim;
	int64_t held_at = 0;
	assert_true(take(*state, "order-1", &claim));
	answer_ms = LEASE_MS / 2;
	while (!renewed_at) {
		rest();
		if (!is_held(*state, &claim)) /* a slow machine was late with the renewal */
			take_again(*state, &claim);
	}
	silent = true;
	/* the clock is read before the question, so that a thread that waits for the processor
	 * does not matter */
	for (int64_t now = clock_ms(); is_held(*state, &claim); now = clock_ms()) {
		held_at = now;
		rest();
	}
	assert_true(held_at < renewed_at + LEASE_MS);
	answer_ms = 0;
}

static void a_release_without_an_answer_is_told(void **state)
{
	struct outbox_error error;
	struct outbox_claim claim;
	assert_true(take(*state, "a", &claim));
	silent = true;
	assert_false(outbox_claims_release(*state, &claim, &error));
	assert_true(error.kind == OUTBOX_RETRY || error.kind == OUTBOX_FENCED /* a slow machine */);
	silent = false;
	assert_false(outbox_claims_check(*state, &claim, &error));
	assert_int_equal(error.kind, OUTBOX_REJECT);
}

static void a_bad_id_is_refused(void **state)
{
	struct outbox_error error;
	struct outbox_claim claim;
	bool taken;
	char *large = calloc(1, 1 << 20);
	assert_false(outbox_claims_take(*state, large, 0, &claim, &taken, &error));
	assert_int_equal(error.kind, OUTBOX_REJECT);
	assert_false(outbox_claims_take(*state, large, 1 << 20, &claim, &taken, &error));
	assert_int_equal(error.kind, OUTBOX_REJECT);
	assert_non_null(strstr(error.message, "SHA-256"));
	free(large);
}

static void the_end_gives_back_what_is_held(void **state)
{
	struct outbox_claim claim;
	(void)state;
	struct err err;
	const struct claims_spec spec = {.type = &fake, .lease_ms = 100000};
	struct outbox_claims *claims = claims_open(&spec, &err);
	assert_true(take(claims, "x", &claim) && take(claims, "y", &claim));
	outbox_claims_close(claims);
	assert_int_equal(world.count, 0);
	outbox_claims_close(NULL);
}

static void a_bad_line_says_what_is_wrong(void **state)
{
	(void)state;
	static const struct {
		const char *line, *word;
	} wrong[] = {
	    {"", "redis, postgres"},
	    {"bloom ids=5", "'bloom' is no store of claims"},
	    {"postgres", "name is missing"},
	    {"redis name=x", "url is missing"},
	    {"postgres name=x window=24h", "'window' is no setting"},
	    {"postgres name=x lease=1ms", "lease=30s"},
	    {"postgres name=x lossy", "'lossy' is no setting"},
	};
	for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
		struct outbox_error error;
		assert_null(outbox_claims_open(wrong[i].line, &error));
		print_message("%s\n", error.message);
		assert_int_equal(error.kind, OUTBOX_CONFIG);
		assert_non_null(strstr(error.message, wrong[i].word));
	}
}

static void a_timeout_leaves_time_to_try_a_renewal_again(void **state)
{
	(void)state;
	OWNED(claims_spec_finish) struct claims_spec spec;
	struct err err;
	assert_true(claims_spec_parse("postgres name=x lease=3s", &spec, &err));
	assert_int_equal(spec.timeout_ms, 1000);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)
	const struct CMUnitTest tests[] = {
	    TEST(an_id_is_had_by_one_and_its_token_rises),
	    TEST(a_claim_is_renewed_while_it_is_held),
	    cmocka_unit_test_setup_teardown(many_are_renewed_in_rounds, begin_many, end),
	    TEST(what_somebody_else_has_is_told_to_who_lost_it),
	    TEST(who_cannot_renew_has_lost_it_at_the_lease_s_end),
	    TEST(a_lease_that_was_taken_counts_from_before_the_request),
	    TEST(a_lease_that_was_renewed_counts_from_before_the_request),
	    TEST(a_release_without_an_answer_is_told),
	    TEST(a_bad_id_is_refused),
	    TEST(the_end_gives_back_what_is_held),
	    TEST(a_bad_line_says_what_is_wrong),
	    TEST(a_timeout_leaves_time_to_try_a_renewal_again),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
