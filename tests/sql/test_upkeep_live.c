/*
 * relay/upkeep against a living Postgres (TEST_DATABASE_URL): whole steps, each test in a database
 * of its own. What the functions in SQL promise is tested in test_partitions.py.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "live_database.h"
#include "log_upkeep.h"
#include "migrate.h"
#include "pg.h"
#include "schema_text.h"
#include "upkeep.h"

enum { PATIENCE_MS = 30000, HOUR_MS = 3600 * 1000, INTERVAL_MS = 60000 };

struct stage {
	struct pg *pg;
	char *database; /* its address */
	const char *schema;
	struct postgres_settings postgres;
	struct upkeep *upkeep;
	struct log_upkeep *log_upkeep;
};

static int64_t ask(struct stage *stage, const char *sql)
{
	struct err err = {0};
	owned_text char *text = schema_text(sql, stage->schema);
	OWNED(owned_pg_result_destroy)
	struct pg_result *result = pg_query(stage->pg, text, NULL, 0, &err);
	if (!result)
		fail_msg("%s: %s", text, err.message);
	return pg_rows(result) ? pg_int(result, 0, 0) : 0;
}

static void run(struct stage *stage, const char *script)
{
	struct err err = {0};
	owned_text char *text = schema_text(script, stage->schema);
	if (!pg_script(stage->pg, text, &err))
		fail_msg("%s: %s", text, err.message);
}

static void acknowledge(struct stage *stage)
{
	run(stage,
	    "insert into outbox.log (publisher, shard, n, epoch, nonce, owner, lease_until, "
	    "first_tick, "
	    "acked_id, ticks, destinations, folded, timeline, system_identifier) select publisher, "
	    "shard, n + "
	    "1, "
	    "epoch, 1, '', '-infinity', first_tick + 1, 0, array[pg_current_snapshot()], '{}', "
	    "folded, timeline, system_identifier from outbox.progress");
}

/* A step; returns in how many milliseconds the next is wanted. */
static int64_t step(struct stage *stage)
{
	return upkeep_step(stage->upkeep, 1000) - 1000;
}

static int64_t log_step(struct stage *stage)
{
	return log_upkeep_step(stage->log_upkeep, 1000, INTERVAL_MS) - 1000;
}

static const char *log_problem(struct stage *stage)
{
	return log_upkeep_problem(stage->log_upkeep);
}

static const char *problem(struct stage *stage)
{
	return upkeep_status(stage->upkeep)->problem;
}

/* Of the message table. */
static const struct upkeep_table *status(struct stage *stage)
{
	return &upkeep_status(stage->upkeep)->tables[0];
}

static const struct upkeep_table *lookback(struct stage *stage)
{
	return &upkeep_status(stage->upkeep)->tables[1];
}

static int set_up(void **state)
{
	struct err err = {0};
	struct stage *stage = calloc(1, sizeof *stage);
	if (!stage)
		return -1;

	stage->schema = "upkeep_1";
	stage->database = live_database_make(stage->schema);
	if (!stage->database)
		return -1;
	stage->postgres = (struct postgres_settings){
	    .name = "main",
	    .dsn = stage->database,
	    .schema = (char *)stage->schema,
	    .partition_every_ms = HOUR_MS,
	    .partitions_ahead = 3,
	    .retain_ms = 24 * HOUR_MS,
	    .retention = RETENTION_DROP,
	    .upkeep_interval_ms = INTERVAL_MS,
	};
	stage->pg = pg_connect(stage->database, "test", PATIENCE_MS, &err);
	if (!stage->pg) {
		print_error("%s\n", err.message);
		return -1;
	}
	stage->upkeep = upkeep_start(&stage->postgres);
	stage->log_upkeep = log_upkeep_start(&stage->postgres);
	*state = stage;
	return 0;
}

static int tear_down(void **state)
{
	struct stage *stage = *state;
	upkeep_stop(stage->upkeep);
	log_upkeep_stop(stage->log_upkeep);
	pg_destroy(stage->pg);
	live_database_drop(stage->database);
	free(stage);
	return 0;
}

static void a_step_makes_partitions_ahead_and_comes_back_after_the_interval(void **state)
{
	struct stage *stage = *state;
	stage->postgres.partition_every_ms = 24 * HOUR_MS;
	stage->postgres.partitions_ahead = 10;
	upkeep_reload(stage->upkeep, &stage->postgres);
	assert_int_equal(step(stage), INTERVAL_MS);
	assert_int_equal(status(stage)->partitions, 11);
	assert_true(status(stage)->ahead_s >= 10 * 24 * 3600);
	assert_int_equal(step(stage), INTERVAL_MS);
	assert_int_equal(status(stage)->partitions, 11);
	assert_string_equal(problem(stage), "");
}

static void what_no_reader_of_the_look_back_goes_on_from_is_forgotten(void **state)
{
	struct stage *stage = *state;
	run(stage, "insert into outbox.lookback_log (section, topic, partition, n, next_offset, "
		   "promoted_to, "
		   "reader) select 's', 't', 0, n, n, now(), 'r' from generate_series(1, 9) n");
	assert_int_equal(step(stage), INTERVAL_MS);
	assert_int_equal(ask(stage, "select sum(n) from outbox.lookback_log"), 9);
}

static void another_width_begins_where_the_old_one_ended(void **state)
{
	struct stage *stage = *state;
	stage->postgres.partition_every_ms = HOUR_MS;
	stage->postgres.partitions_ahead = 24 * 2 + 12;
	upkeep_reload(stage->upkeep, &stage->postgres);
	step(stage);
	assert_true(status(stage)->partitions > 4);
	assert_int_equal(
	    ask(stage, "select count(*) from (select from_at, lag(to_at) over (order by from_at) "
		       "as before from outbox.partitions('message')) p where from_at <> before"),
	    0);
}

static void an_acknowledged_partition_is_dropped_after_its_time(void **state)
{
	struct stage *stage = *state;
	run(stage,
	    "select outbox.partition_make('message', '2020-01-01Z', '2020-01-02Z');"
	    "insert into outbox.message (topic, created_at) values ('t', '2020-01-01 10:00Z')");
	acknowledge(stage);
	step(stage);
	assert_int_equal(ask(stage, "select count(*) from outbox.message"), 0);
	assert_int_equal(
	    ask(stage, "select count(*) from outbox.partitions('message') where to_at < now()"), 0);
}

static void a_publisher_that_is_behind_keeps_it_and_is_named(void **state)
{
	struct stage *stage = *state;
	run(stage,
	    "select outbox.partition_make('message', '2020-01-01Z', '2020-01-02Z'), "
	    "outbox.partition_make('message', '2020-01-02Z', '2020-01-03Z');"
	    "insert into outbox.message (topic, created_at) values ('t', '2020-01-01 10:00Z')");
	assert_int_equal(step(stage), INTERVAL_MS);
	assert_string_equal(status(stage)->held, "message_p20200101");
	assert_string_equal(status(stage)->holder, "main/0");
	assert_int_equal(
	    ask(stage, "select count(*) from outbox.partitions('message') where to_at < now()"), 2);
	acknowledge(stage);
	step(stage);
	assert_string_equal(status(stage)->held, "");
	assert_int_equal(
	    ask(stage, "select count(*) from outbox.partitions('message') where to_at < now()"), 0);
}

static void a_partition_that_cannot_be_looked_at_is_still_held(void **state)
{
	struct stage *stage = *state;
	run(stage,
	    "select outbox.partition_make('message', '2020-01-01Z', '2020-01-02Z');"
	    "insert into outbox.message (topic, created_at) values ('t', '2020-01-01 10:00Z')");
	for (int i = RETENTION_DROP; i <= RETENTION_DETACH; i++) {
		stage->postgres.retention = i;
		upkeep_reload(stage->upkeep, &stage->postgres);
		step(stage);
		assert_string_equal(status(stage)->holder, "main/0");
		run(stage,
		    "begin; select from outbox.upkeep_lock where work = 'partitions' for update");
		assert_true(step(stage) < INTERVAL_MS);
		run(stage, "commit");
		assert_string_equal(status(stage)->held, "message_p20200101");
		assert_string_equal(status(stage)->holder, "main/0");
	}
}

static void an_emptied_partition_is_not_held_while_it_waits_to_be_dropped(void **state)
{
	struct stage *stage = *state;
	run(stage,
	    "select outbox.partition_make('message', '2020-01-01Z', '2020-01-02Z');"
	    "insert into outbox.message (topic, created_at) values ('t', '2020-01-01 10:00Z')");
	step(stage);
	assert_string_equal(status(stage)->held, "message_p20200101");
	acknowledge(stage);
	run(stage, "begin; insert into outbox.message (topic) values ('t')");
	assert_true(step(stage) < INTERVAL_MS);
	run(stage, "commit");
	assert_string_equal(status(stage)->held, "");
	assert_int_equal(
	    ask(stage, "select count(*) from outbox.partitions('message') where to_at < now()"), 1);
}

static void detached_partitions_stay_as_tables(void **state)
{
	struct stage *stage = *state;
	stage->postgres.retention = RETENTION_DETACH;
	upkeep_reload(stage->upkeep, &stage->postgres);
	run(stage,
	    "select outbox.partition_make('message', '2020-01-01Z', '2020-01-02Z');"
	    "insert into outbox.message (topic, created_at) values ('t', '2020-01-01 10:00Z')");
	acknowledge(stage);
	step(stage);
	assert_int_equal(ask(stage, "select count(*) from outbox.message"), 0);
	assert_int_equal(ask(stage, "select count(*) from outbox.message_p20200101"), 1);
}

static void a_busy_table_is_tried_again_soon(void **state)
{
	struct stage *stage = *state;
	run(stage, "select outbox.partition_make('message', '2020-01-01Z', '2020-01-02Z')");
	acknowledge(stage);
	run(stage, "begin; insert into outbox.message (topic) values ('t')");
	assert_true(step(stage) < INTERVAL_MS);
	assert_int_equal(
	    ask(stage, "select count(*) from outbox.partitions('message') where to_at < now()"), 1);
	run(stage, "commit");
	assert_int_equal(step(stage), INTERVAL_MS);
	assert_int_equal(
	    ask(stage, "select count(*) from outbox.partitions('message') where to_at < now()"), 0);
}

static void rows_in_the_default_partition_are_moved(void **state)
{
	struct stage *stage = *state;
	run(stage,
	    "insert into outbox.message (topic, created_at) values ('t', now() - interval '1 "
	    "day'), ('t', now() + interval '9 days')");
	assert_int_equal(ask(stage, "select count(*) from outbox.message_default"), 2);
	assert_int_equal(step(stage), INTERVAL_MS);
	assert_int_equal(status(stage)->default_rows, 0);
	assert_int_equal(ask(stage, "select count(*) from outbox.message_default"), 0);
	assert_int_equal(ask(stage, "select count(*) from outbox.message"), 2);
}

static void prepare(struct stage *stage, const char *id, const char *at)
{
	owned_text char *script =
	    xformat("insert into outbox.lookback (biz_type, biz_id, prepared_at, kind, section, "
		    "source_partition, source_offset, topic, check_at, digest, event_id) values "
		    "('order', '%s', '%s', 'prepare', 'shop', 0, 0, 't', now(), 'd', "
		    "gen_random_uuid())",
		id, at);
	run(stage, script);
}

static void roll_back(struct stage *stage, const char *id)
{
	owned_text char *script =
	    xformat("insert into outbox.lookback (biz_type, biz_id, prepared_at, kind, section, "
		    "decision, source, decided_at) select biz_type, biz_id, prepared_at, "
		    "'decision', section, 'rollback', 'operator', now() from outbox.lookback "
		    "where biz_id = '%s'",
		id);
	run(stage, script);
}

static void the_look_backs_partitions_are_kept_as_well(void **state)
{
	struct stage *stage = *state;
	stage->postgres.partition_every_ms = 24 * HOUR_MS;
	stage->postgres.partitions_ahead = 10;
	upkeep_reload(stage->upkeep, &stage->postgres);
	prepare(stage, "late", "2020-01-01 10:00Z");
	roll_back(stage, "late");
	assert_int_equal(ask(stage, "select count(*) from outbox.lookback_default"), 2);
	assert_int_equal(step(stage), INTERVAL_MS);
	assert_string_equal(problem(stage), "");
	assert_int_equal(lookback(stage)->default_rows, 0);
	assert_true(lookback(stage)->ahead_s >= 10 * 24 * 3600);
	assert_int_equal(ask(stage, "select count(*) from outbox.partitions('lookback') where "
				    "to_at < now()"),
	    0);
	assert_int_equal(ask(stage, "select count(*) from outbox.lookback"), 0);
}

static void an_undecided_prepare_keeps_its_partition_and_no_younger_one(void **state)
{
	struct stage *stage = *state;
	run(stage, "select outbox.partition_make('lookback', '2020-01-01Z', '2020-01-02Z'), "
		   "outbox.partition_make('lookback', '2020-01-02Z', '2020-01-03Z')");
	prepare(stage, "a", "2020-01-01 10:00Z");
	prepare(stage, "b", "2020-01-02 10:00Z");
	roll_back(stage, "b");
	for (int i = 0; i < 2; i++) {
		assert_int_equal(step(stage), INTERVAL_MS);
		assert_string_equal(lookback(stage)->held, "lookback_p20200101");
		assert_string_equal(lookback(stage)->holder, "shop");
		assert_int_equal(ask(stage, "select count(*) from outbox.lookback"), 1);
	}
	assert_string_equal(status(stage)->held, "");
	roll_back(stage, "a");
	step(stage);
	assert_string_equal(lookback(stage)->held, "");
	assert_int_equal(ask(stage, "select count(*) from outbox.lookback"), 0);
}

static void what_was_processed_goes_when_its_window_has_passed(void **state)
{
	struct stage *stage = *state;
	const struct upkeep_table *processed = &upkeep_status(stage->upkeep)->tables[2];
	stage->postgres.partition_every_ms = 24 * HOUR_MS;
	upkeep_reload(stage->upkeep, &stage->postgres);
	run(stage, "select outbox.processed_take('billing', '{late,now}', "
		   "array['2020-01-01 10:00Z', now()], '1 hour')");
	assert_int_equal(ask(stage, "select count(*) from outbox.processed_default"), 1);
	assert_int_equal(step(stage), INTERVAL_MS);
	assert_string_equal(problem(stage), "");
	assert_int_equal(processed->default_rows, 0);
	assert_string_equal(processed->held, "processed_p20200101");
	assert_string_equal(processed->holder, "billing");
	run(stage, "update outbox.processed set kept_until = now()");
	assert_int_equal(step(stage), INTERVAL_MS);
	assert_string_equal(processed->held, "");
	assert_int_equal(ask(stage, "select count(*) from outbox.processed"), 1);
	assert_int_equal(ask(stage, "select count(*) from outbox.partitions('processed') where "
				    "to_at < '2021-01-01'"),
	    0);
}

/* `retain` is 30 days, and a partition that is detached stays as a table. */
static void unique_keys_go_when_their_window_has_passed_whatever_the_retention(void **state)
{
	struct stage *stage = *state;
	const struct upkeep_table *ledger = &upkeep_status(stage->upkeep)->tables[3];
	stage->postgres.partition_every_ms = HOUR_MS;
	stage->postgres.retain_ms = INT64_C(30) * 24 * HOUR_MS;
	stage->postgres.retention = RETENTION_DETACH;
	upkeep_reload(stage->upkeep, &stage->postgres);
	run(stage,
	    "select outbox.publish('orders', 'k', 'p', unique_key => 'a', within => '10 days')");
	run(stage, "update outbox.unique_ledger set at = now() - interval '5 days', "
		   "kept_until = now() + interval '5 days'");
	assert_int_equal(step(stage), INTERVAL_MS);
	assert_string_equal(problem(stage), "");
	/* that is usual, and no news */
	assert_string_equal(ledger->held, "");
	assert_int_equal(ask(stage, "select count(*) from outbox.unique_ledger"), 1);

	run(stage, "update outbox.unique_ledger set kept_until = now()");
	assert_int_equal(step(stage), INTERVAL_MS);
	assert_int_equal(ask(stage, "select count(*) from outbox.unique_ledger"), 0);
	assert_int_equal(ask(stage, "select count(*) from outbox.partitions('unique_ledger') where "
				    "to_at < now()"),
	    0);
	assert_int_equal(ask(stage, "select count(*) from pg_class where relname like "
				    "'unique_ledger_p%' and not relispartition and relnamespace = "
				    "'outbox'::regnamespace and relkind = 'r'"),
	    0);
}

static void upkeep_of_one_table_that_fails_keeps_the_other_from_nothing(void **state)
{
	struct stage *stage = *state;
	stage->postgres.partition_every_ms = 24 * HOUR_MS;
	stage->postgres.partitions_ahead = 10;
	upkeep_reload(stage->upkeep, &stage->postgres);
	run(stage, "alter table outbox.message_default rename to hidden");
	assert_true(step(stage) <= 1200);
	assert_string_not_equal(problem(stage), "");
	assert_int_equal(lookback(stage)->partitions, 11);
	run(stage, "alter table outbox.hidden rename to message_default");
	run(stage, "alter table outbox.lookback_default rename to hidden");
	step(stage);
	assert_string_not_equal(problem(stage), "");
	assert_int_equal(status(stage)->partitions, 11);
	run(stage, "alter table outbox.hidden rename to lookback_default");
	assert_int_equal(step(stage), INTERVAL_MS);
	assert_string_equal(problem(stage), "");
}

static void the_logs_partitions_are_made_and_dropped(void **state)
{
	struct stage *stage = *state;
	run(stage, "update outbox.log set n = 600000");
	log_step(stage);
	assert_int_equal(ask(stage, "select count(*) from outbox.log_partitions()"), 2);
	run(stage, "update outbox.log set n = 1002000, folded = 1002000");
	log_step(stage);
	assert_int_equal(ask(stage, "select min(from_n) from outbox.log_partitions()"), 1000000);
	assert_string_equal(log_problem(stage), "");
}

static void the_log_is_looked_at_every_15_seconds_or_more_often(void **state)
{
	struct stage *stage = *state;
	assert_int_equal(log_upkeep_step(stage->log_upkeep, 1000, 24 * HOUR_MS), 1000 + 15000);
	assert_int_equal(log_upkeep_step(stage->log_upkeep, 1000, 200), 1000 + 200);
}

static void the_logs_partitions_are_made_while_the_message_table_is_locked(void **state)
{
	struct stage *stage = *state;
	run(stage, "update outbox.log set n = 600000");
	run(stage, "begin;"
		   "lock table outbox.message in access exclusive mode;"
		   "select from outbox.upkeep_lock where work = 'partitions' for update");
	assert_int_equal(log_step(stage), 15000);
	run(stage, "commit");
	assert_int_equal(ask(stage, "select count(*) from outbox.log_partitions()"), 2);
}

static void a_busy_log_is_tried_again_soon(void **state)
{
	struct stage *stage = *state;
	run(stage, "update outbox.log set n = 600000");
	log_step(stage);
	run(stage, "update outbox.log set n = 1002000, folded = 1002000");
	run(stage, "begin;"
		   "select from outbox.upkeep_lock where work = 'partitions' for update");
	assert_int_equal(log_step(stage), 5000);
	run(stage, "commit");
	assert_int_equal(log_step(stage), 15000);
	assert_int_equal(ask(stage, "select min(from_n) from outbox.log_partitions()"), 1000000);
}

static void upkeep_of_the_message_table_that_fails_keeps_the_log_from_nothing(void **state)
{
	struct stage *stage = *state;
	run(stage, "alter table outbox.message_default rename to hidden;"
		   "update outbox.log set n = 600000");
	step(stage);
	assert_string_not_equal(problem(stage), "");
	log_step(stage);
	assert_string_equal(log_problem(stage), "");
	assert_int_equal(ask(stage, "select count(*) from outbox.log_partitions()"), 2);
}

static void upkeep_of_the_log_that_fails_keeps_the_message_table_from_nothing(void **state)
{
	struct stage *stage = *state;
	run(stage, "alter function outbox.log_partitions_due() rename to hidden");
	assert_true(log_step(stage) <= 1200);
	assert_string_not_equal(log_problem(stage), "");
	assert_int_equal(step(stage), INTERVAL_MS);
	assert_string_equal(problem(stage), "");
	run(stage, "alter function outbox.hidden() rename to log_partitions_due");
	assert_int_equal(log_step(stage), 15000);
	assert_string_equal(log_problem(stage), "");
}

static void a_log_partition_that_cannot_be_made_keeps_no_other_from_being_made(void **state)
{
	struct stage *stage = *state;
	run(stage, "select outbox.publisher_create('wide', 5, 'now');"
		   "update outbox.log set n = 600000;"
		   "create table outbox.log_wide_2_1000000 ()");
	assert_true(log_step(stage) <= 1200);
	assert_non_null(strstr(log_problem(stage), "log_wide_2_1000000"));
	assert_int_equal(
	    ask(stage, "select count(*) from outbox.log_partitions() where from_n = 1000000"), 5);
	run(stage, "drop table outbox.log_wide_2_1000000");
	assert_int_equal(log_step(stage), 15000);
	assert_string_equal(log_problem(stage), "");
	assert_int_equal(
	    ask(stage, "select count(*) from outbox.log_partitions() where from_n = 1000000"), 6);
}

static void a_row_that_no_partition_takes_stops_no_upkeep(void **state)
{
	struct stage *stage = *state;
	run(stage,
	    "alter table outbox.message drop constraint if exists created_at_is_finite;"
	    "alter table outbox.message_default drop constraint if exists created_at_is_finite;"
	    "insert into outbox.message (topic, created_at) values ('t', 'infinity'), "
	    "('t', now() - interval '1 day')");
	stage->postgres.partitions_ahead = 24 * 2 + 12;
	upkeep_reload(stage->upkeep, &stage->postgres);
	assert_int_equal(step(stage), INTERVAL_MS);
	assert_string_equal(problem(stage), "");
	assert_int_equal(status(stage)->default_rows, 1);
	assert_true(status(stage)->ahead_s >= (24 * 2 + 11) * 3600);
	assert_int_equal(step(stage), INTERVAL_MS);
	assert_int_equal(ask(stage, "select count(*) from outbox.message_default"), 1);
	assert_int_equal(ask(stage, "select count(*) from outbox.message"), 2);
}

static void a_schema_that_is_gone_is_a_problem_until_it_is_back(void **state)
{
	struct stage *stage = *state;
	run(stage, "alter schema outbox rename to hidden");
	assert_true(step(stage) <= 1200);
	assert_string_not_equal(problem(stage), "");
	assert_true(step(stage) > 1200);
	run(stage, "alter schema hidden rename to outbox");
	assert_int_equal(step(stage), INTERVAL_MS);
	assert_string_equal(problem(stage), "");
}

static void a_server_that_does_not_answer_is_a_problem(void **state)
{
	struct stage *stage = *state;
	struct postgres_settings elsewhere = stage->postgres;
	elsewhere.dsn = "postgresql://127.0.0.1:1/nowhere";
	struct upkeep *upkeep = upkeep_start(&elsewhere);
	assert_true(upkeep_step(upkeep, 0) <= 1200);
	assert_string_not_equal(upkeep_status(upkeep)->problem, "");
	upkeep_stop(upkeep);
	upkeep_stop(NULL);
	struct log_upkeep *log_upkeep = log_upkeep_start(&elsewhere);
	assert_true(log_upkeep_step(log_upkeep, 0, 24 * HOUR_MS) <= 1200);
	assert_string_not_equal(log_upkeep_problem(log_upkeep), "");
	log_upkeep_stop(log_upkeep);
	log_upkeep_stop(NULL);
}

static void a_check_says_what_is_missing(void **state)
{
	struct stage *stage = *state;
	struct err err = {0};
	assert_true(migrate_check(stage->pg, stage->schema, &err));
	assert_false(migrate_check(stage->pg, "nobody", &err));
	assert_int_equal(err.kind, ERR_CONFIG);
	assert_non_null(strstr(err.message, "the schema nobody is not there; run"));
	run(stage, "delete from outbox.migration where name = '0005_publishers'");
	assert_false(migrate_check(stage->pg, stage->schema, &err));
	assert_non_null(
	    strstr(err.message, "it lacks 0005_publishers; run `outbox-relay migrate up`"));
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
	const struct CMUnitTest tests[] = {
	    TEST(a_step_makes_partitions_ahead_and_comes_back_after_the_interval),
	    TEST(what_no_reader_of_the_look_back_goes_on_from_is_forgotten),
	    TEST(another_width_begins_where_the_old_one_ended),
	    TEST(an_acknowledged_partition_is_dropped_after_its_time),
	    TEST(a_publisher_that_is_behind_keeps_it_and_is_named),
	    TEST(a_partition_that_cannot_be_looked_at_is_still_held),
	    TEST(an_emptied_partition_is_not_held_while_it_waits_to_be_dropped),
	    TEST(detached_partitions_stay_as_tables),
	    TEST(a_busy_table_is_tried_again_soon),
	    TEST(rows_in_the_default_partition_are_moved),
	    TEST(a_row_that_no_partition_takes_stops_no_upkeep),
	    TEST(the_look_backs_partitions_are_kept_as_well),
	    TEST(an_undecided_prepare_keeps_its_partition_and_no_younger_one),
	    TEST(what_was_processed_goes_when_its_window_has_passed),
	    TEST(unique_keys_go_when_their_window_has_passed_whatever_the_retention),
	    TEST(upkeep_of_one_table_that_fails_keeps_the_other_from_nothing),
	    TEST(the_logs_partitions_are_made_and_dropped),
	    TEST(the_log_is_looked_at_every_15_seconds_or_more_often),
	    TEST(the_logs_partitions_are_made_while_the_message_table_is_locked),
	    TEST(a_busy_log_is_tried_again_soon),
	    TEST(upkeep_of_the_message_table_that_fails_keeps_the_log_from_nothing),
	    TEST(upkeep_of_the_log_that_fails_keeps_the_message_table_from_nothing),
	    TEST(a_log_partition_that_cannot_be_made_keeps_no_other_from_being_made),
	    TEST(a_schema_that_is_gone_is_a_problem_until_it_is_back),
	    TEST(a_server_that_does_not_answer_is_a_problem),
	    TEST(a_check_says_what_is_missing),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
