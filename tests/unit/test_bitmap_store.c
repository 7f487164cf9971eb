#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "cleanup.h"
#include "fingerprint.h"
#include "dedup_walk.h"
#include "temporary.h"
#include "text.h"

static char folder[TEMPORARY];

static int begin(void **state)
{
	(void)state;
	return temporary_make(folder) ? 0 : -1;
}

static int end(void **state)
{
	(void)state;
	temporary_remove(folder);
	return 0;
}

static struct outbox_dedup *open_with(const char *settings)
{
	owned_text char *line = xformat("bitmap %s path=%s", settings, folder);
	return dedup_walk_open(line);
}

static enum outbox_dedup_state check(struct outbox_dedup *dedup, const char *text)
{
	struct outbox_dedup_id id = {text, strlen(text), -1, -1};
	struct outbox_error error;
	enum outbox_dedup_state found;
	if (!outbox_dedup_check(dedup, &id, 1, &found, &error))
		fail_msg("%s", error.message);
	return found;
}

static void refuse(struct outbox_dedup *dedup, const char *text)
{
	struct outbox_dedup_id id = {text, strlen(text), -1, -1};
	struct outbox_error error;
	enum outbox_dedup_state found;
	assert_false(outbox_dedup_check(dedup, &id, 1, &found, &error));
	print_message("%s\n", error.message);
	assert_int_equal(error.kind, OUTBOX_REJECT);
	assert_non_null(strstr(error.message, "raise ids"));
	assert_int_equal(dedup_walk_stats(dedup).pending, 0);
}

static void an_id_is_an_integer_of_the_range_in_one_spelling(void **state)
{
	(void)state;
	struct outbox_dedup *dedup = open_with("ids=5000001");
	assert_int_equal(check(dedup, "0"), OUTBOX_DEDUP_NEW);
	assert_int_equal(check(dedup, "5000000"), OUTBOX_DEDUP_NEW);
	static const char *const wrong[] = {"5000001", "-1", "+1", "01", "00", " 1", "1 ", "1.0",
	    "1e3", "0x1", "99999999999999999999", "18446744073709551617", "seven"};
	outbox_dedup_close(dedup);
	dedup = open_with("ids=5000001");
	for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
		refuse(dedup, wrong[i]);
	outbox_dedup_close(dedup);
}

static void only_what_is_used_takes_room(void **state)
{
	(void)state;
	struct outbox_dedup *dedup = open_with("ids=1G");
	dedup_walk(dedup, 0, 10, -1, true);
	dedup_walk(dedup, 999999990, 10, -1, true);
	struct outbox_dedup_stats stats = dedup_walk_stats(dedup);
	assert_int_equal(stats.ids, 20);
	assert_in_range(stats.disk_bytes, 2 * 512 * 1024, 2 * 512 * 1024 + 3 * 4096);
	assert_int_equal(dedup_walk(dedup, 999999980, 20, -1, false), 10);
	outbox_dedup_close(dedup);
	dedup = open_with("ids=1G");
	assert_int_equal(dedup_walk_stats(dedup).ids, 20);
	assert_int_equal(dedup_walk(dedup, 999999980, 20, -1, false), 10);
	outbox_dedup_close(dedup);
}

/* Ids without a pattern, one at a time: for numbers in a row a CRC32 has fewer collisions than
 * that. */
static uint64_t walk_hashes(struct outbox_dedup *dedup, uint64_t first, uint64_t count, bool finish)
{
	uint64_t fresh = 0;
	for (uint64_t i = first; i < first + count; i++) {
		struct fingerprint hash = fingerprint_of(&i, sizeof i, 1);
		struct outbox_dedup_id id = {&hash, sizeof hash, -1, -1};
		struct outbox_error error;
		enum outbox_dedup_state found;
		assert_true(outbox_dedup_check(dedup, &id, 1, &found, &error));
		if (found != OUTBOX_DEDUP_NEW)
			continue;
		fresh++;
		assert_true(
		    (finish ? outbox_dedup_done : outbox_dedup_release)(dedup, &id, 1, &error));
	}
	return fresh;
}

static void the_rate_of_the_classic_form_is_the_share_of_bits(void **state)
{
	(void)state;
	const uint64_t ids = 1000000;
	struct outbox_dedup *dedup = open_with("lossy form=hash ids=1M");
	uint64_t fresh = walk_hashes(dedup, 0, ids, true);
	struct outbox_dedup_stats stats = dedup_walk_stats(dedup);
	assert_int_equal(stats.ids, fresh);
	assert_true(fabs(stats.planned_rate * 4294967296. / (double)ids - 1) < 0.01);
	uint64_t found = ids - walk_hashes(dedup, ids, ids, false);
	print_message("%llu false positives, in theory %.0f\n", (unsigned long long)found,
	    stats.planned_rate * (double)ids);
	assert_in_range(found, 233 - 4 * 16, 233 + 4 * 16);
	outbox_dedup_close(dedup);
}

/* CRC32 "123456789" is cbf43926 (any description of it): partition 815, offset 3422502. */
static void the_bit_is_where_the_classic_scheme_has_it(void **state)
{
	(void)state;
	struct dedup_walk_id id;
	struct outbox_error error;
	unsigned char byte;
	struct outbox_dedup *dedup = open_with("lossy form=hash ids=10");
	dedup_walk_name(&id, 123456789, -1);
	assert_int_equal(check(dedup, id.text), OUTBOX_DEDUP_NEW);
	assert_true(outbox_dedup_done(dedup, &id.id, 1, &error));
	outbox_dedup_close(dedup);
	owned_text char *path = xformat("%s/815.bits", folder);
	FILE *file = fopen(path, "r");
	assert_non_null(file);
	fseek(file, 4096 + 3422502 / 8, SEEK_SET);
	assert_int_equal(fread(&byte, 1, 1, file), 1);
	assert_int_equal(byte, 1 << 3422502 % 8);
	fclose(file);
}

static void a_killed_process_forgets_nothing(void **state)
{
	(void)state;
	pid_t child = fork();
	if (child == 0) {
		struct outbox_dedup *dedup = open_with("ids=10M");
		dedup_walk(dedup, 0, 1000, -1, true);
		dedup_walk_checkpoint(dedup, 5);
		dedup_walk(dedup, 9000000, 1000, -1, true);
		kill(getpid(), SIGKILL);
	}
	waitpid(child, NULL, 0);
	struct outbox_dedup *dedup = open_with("ids=10M");
	assert_int_equal(dedup_walk_stats(dedup).offset, 5);
	assert_int_equal(dedup_walk_stats(dedup).ids, 2000);
	assert_int_equal(dedup_walk(dedup, 0, 1000, -1, false), 0);
	assert_int_equal(dedup_walk(dedup, 9000000, 1000, -1, false), 0);
	outbox_dedup_close(dedup);
}

static void without_room_on_the_disk_an_id_stays_pending(void **state)
{
	(void)state;
	const struct rlimit small = {100000, 100000};
	pid_t child = fork();
	if (child == 0) {
		struct dedup_walk_id id;
		struct outbox_error error;
		struct outbox_dedup *dedup = open_with("ids=10M");
		signal(SIGXFSZ, SIG_IGN);
		setrlimit(RLIMIT_FSIZE, &small);
		dedup_walk_name(&id, 17, -1);
		bool right = check(dedup, id.text) == OUTBOX_DEDUP_NEW &&
			     !outbox_dedup_done(dedup, &id.id, 1, &error) &&
			     error.kind == OUTBOX_RETRY &&
			     check(dedup, id.text) == OUTBOX_DEDUP_PENDING;
		_exit(right ? 0 : 1);
	}
	int status;
	waitpid(child, &status, 0);
	assert_int_equal(status, 0);
	struct outbox_dedup *dedup = open_with("ids=10M"); /* what was half made is made */
	assert_int_equal(dedup_walk(dedup, 0, 100, -1, true), 100);
	outbox_dedup_close(dedup);
}

static void expect_refusal(const char *settings, enum outbox_error_kind kind, const char *word)
{
	struct outbox_error error;
	owned_text char *line = xformat("bitmap %s path=%s", settings, folder);
	assert_null(outbox_dedup_open(line, &error));
	print_message("%s\n", error.message);
	assert_int_equal(error.kind, kind);
	assert_non_null(strstr(error.message, word));
}

static void a_folder_of_another_form_or_range_is_refused(void **state)
{
	(void)state;
	struct outbox_dedup *dedup = open_with("ids=10M");
	dedup_walk(dedup, 9000000, 10, -1, true);
	expect_refusal("ids=10M", OUTBOX_FENCED, "another process");
	outbox_dedup_close(dedup);
	expect_refusal("lossy form=hash ids=10M", OUTBOX_CONFIG, "of the store 'bitmap'");
	expect_refusal("ids=1M", OUTBOX_CONFIG, "raise ids");
	dedup = open_with("ids=20M"); /* a larger range is no matter */
	assert_int_equal(dedup_walk(dedup, 9000000, 10, -1, false), 0);
	outbox_dedup_close(dedup);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)
	const struct CMUnitTest tests[] = {
	    TEST(an_id_is_an_integer_of_the_range_in_one_spelling),
	    TEST(only_what_is_used_takes_room),
	    TEST(the_rate_of_the_classic_form_is_the_share_of_bits),
	    TEST(the_bit_is_where_the_classic_scheme_has_it),
	    TEST(a_killed_process_forgets_nothing),
	    TEST(without_room_on_the_disk_an_id_stays_pending),
	    TEST(a_folder_of_another_form_or_range_is_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
