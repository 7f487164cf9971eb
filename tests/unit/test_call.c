#include "call.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>
#include "cleanup.h"
#include "help.h"
#include "moment.h"
#include "partitions.h"
#include "text.h"

enum { MOST_WORDS = 16 };

/* "publisher create x" as a command line of the real table. */
static bool parse(const char *line, struct call *call, struct err *err)
{
	static char words[256];
	char *argv[MOST_WORDS] = {"outbox-relay"};
	int argc = 1;

	text_copy(words, sizeof words, line);
	for (char *word = words; *word;) {
		bool quoted = *word == '"';
		size_t length = strcspn(word += quoted, quoted ? "\"" : " ");
		bool last = word[length] == '\0';

		word[length] = '\0';
		argv[argc++] = word;
		word += last ? length : length + 1;
		word += strspn(word, " ");
	}
	return call_parse(commands, argc, argv, call, err);
}

static void expect_refused(const char *line, const char *what)
{
	struct call call;
	struct err err;

	assert_false(parse(line, &call, &err));
	assert_non_null(strstr(err.message, what));
}

static void a_command_has_one_word_or_two(void **state)
{
	struct call call;
	struct err err;

	(void)state;
	assert_true(parse("run", &call, &err));
	assert_string_equal(call.command->name, "run");
	assert_true(parse("publisher create billing", &call, &err));
	assert_string_equal(call.command->name, "publisher create");
	assert_string_equal(call.arguments[0], "billing");
	expect_refused("publisher", "second word");
	expect_refused("publisher paint", "no command 'publisher paint'");
	expect_refused("paint", "no command 'paint'");
	expect_refused("--paint", "no option '--paint'");
}

static void a_word_that_is_nearly_right_is_suggested(void **state)
{
	static const char *const rows[][2] = {
	    {"stauts", "'stauts' (did you mean status?)"},
	    {"publishers list", "'publishers' (did you mean publisher?)"},
	    {"publisher lsit", "'publisher lsit' (did you mean publisher list?)"},
	    {"migrate-up", "'migrate-up' (did you mean migrate up?)"},
	    {"check", "'check' (did you mean check-config?)"},
	    {"STATUS", "'STATUS' (did you mean status?)"},
	    {"status --jsn", "status has no option '--jsn' (did you mean --json?)"},
	    {"status --intervall=2", "'--intervall=2' (did you mean --interval?)"},
	    {"status -json", "'-json' (did you mean --json?)"},
	    {"--confg relay.ini run", "'--confg' (did you mean --config?)"},
	    {"run --hlep", "'--hlep' (did you mean --help?)"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
		expect_refused(rows[i][0], rows[i][1]);
}

static void a_word_that_is_far_off_has_no_suggestion(void **state)
{
	static const char *const lines[] = {
	    "paint", "publisher paint", "x", "run --dry", "run -d", "--paint", "publisher run"};
	struct call call;
	struct err err;

	(void)state;
	for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
		assert_false(parse(lines[i], &call, &err));
		assert_null(strstr(err.message, "did you mean"));
	}
}

static void a_word_of_any_length_is_compared(void **state)
{
	owned_text char *word = xformat("%0100d", 7);
	struct suggestion nearest = suggestion_begin(word);

	(void)state;
	suggestion_offer(&nearest, word + 30, "long");
	assert_string_equal(nearest.note, "");
	nearest = suggestion_begin("");
	suggestion_offer(&nearest, "", "empty");
	assert_string_equal(nearest.note, " (did you mean empty?)");
}

static void the_version_has_a_short_option(void **state)
{
	struct call call;
	struct err err;

	(void)state;
	assert_true(parse("-v", &call, &err));
	assert_string_equal(call.command->name, "version");
	assert_true(parse("--version", &call, &err));
	assert_string_equal(call.command->name, "version");
	expect_refused("run -v", "run has no option '-v'");
}

static void options_stand_before_and_behind_arguments(void **state)
{
	static const char *const lines[] = {
	    "publisher create --shards 4 --start now billing",
	    "publisher create billing --shards=4 --start=now",
	    "publisher --config f create billing --shards 4 --start now",
	};
	struct call call;
	struct err err;

	(void)state;
	for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
		assert_true(parse(lines[i], &call, &err));
		assert_int_equal(call_number(&call, "shards", 1), 4);
		assert_string_equal(call_text(&call, "start", "beginning"), "now");
		assert_string_equal(call.arguments[0], "billing");
		assert_int_equal(call.argument_count, 1);
	}
	assert_string_equal(call.config, "f");
}

static void what_is_not_given_has_its_default(void **state)
{
	struct call call;
	struct err err;

	(void)state;
	assert_true(parse("publisher create billing", &call, &err));
	assert_int_equal(call_number(&call, "shards", 1), 1);
	assert_null(call_text(&call, "start", NULL));
	assert_null(call.config);
	assert_true(parse("run", &call, &err));
	assert_false(call_flag(&call, "drain"));
	assert_true(parse("run --drain", &call, &err));
	assert_true(call_flag(&call, "drain"));
}

static void values_are_checked_by_the_row(void **state)
{
	struct call call;
	struct err err;

	(void)state;
	expect_refused("publisher create x --shards 0", "from 1 to 64");
	expect_refused("publisher create x --shards four", "from 1 to 64");
	expect_refused("publisher create x --shards", "wants a value");
	assert_true(parse("publisher create x --start 2026-01-02", &call, &err));
	assert_string_equal(call_text(&call, "start", NULL), "2026-01-02");
	expect_refused("run --drain=yes", "takes no value");
	expect_refused("run --dry", "no option '--dry'");
	expect_refused("run -d", "no option '-d'");
	expect_refused("--config", "wants a value");
}

static void the_number_of_arguments_is_checked(void **state)
{
	(void)state;
	expect_refused("publisher create", "wants NAME");
	expect_refused("publisher create a b", "does not expect 'b'");
	expect_refused("run now", "does not expect 'now'");
}

static void as_many_arguments_are_taken_as_there_is_room_for(void **state)
{
	static char *argv[CALL_ARGUMENTS + 4] = {"outbox-relay", "parked", "skip"};
	static struct call call;
	struct err err;

	(void)state;
	for (int i = 3; i < CALL_ARGUMENTS + 4; i++)
		argv[i] = "12";
	assert_true(call_parse(commands, CALL_ARGUMENTS + 3, argv, &call, &err));
	assert_int_equal(call.argument_count, CALL_ARGUMENTS);
	assert_false(call_parse(commands, CALL_ARGUMENTS + 4, argv, &call, &err));
	assert_non_null(strstr(err.message, "parked skip takes 10000 arguments at most"));
}

static void two_dashes_end_the_options(void **state)
{
	struct call call;
	struct err err;

	(void)state;
	assert_true(parse("publisher drop -- --yes", &call, &err));
	assert_string_equal(call.arguments[0], "--yes");
	assert_false(call_flag(&call, "yes"));
}

static void help_may_be_asked_anywhere(void **state)
{
	static const char *const lines[] = {"--help", "-h", "publisher --help",
	    "publisher create --help", "--help publisher create", "run -h"};
	struct call call;
	struct err err;

	(void)state;
	for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
		assert_true(parse(lines[i], &call, &err));
		assert_true(call.help);
	}
}

static int run_nothing(const struct call *call)
{
	(void)call;
	return 0;
}

static void no_word_names_the_command_of_a_single_row(void **state)
{
	static const struct command_option options[] = {{"rows", "N", "Rows.", 1, 10}, {0}};
	static const struct command command = {.name = "bench",
	    .arguments = "[KIND]",
	    .most_arguments = 1,
	    .options = options,
	    .run = run_nothing};
	static const struct command *const rows[] = {&command, NULL};
	static char *words[] = {"outbox-relay-bench", "drain", "--rows", "7", "--config=f"};
	struct call call;
	struct err err;

	(void)state;
	assert_true(call_parse(rows, 5, words, &call, &err));
	assert_ptr_equal(call.command, &command);
	assert_string_equal(call.arguments[0], "drain");
	assert_int_equal(call_number(&call, "rows", 1), 7);
	assert_string_equal(call.config, "f");
	assert_true(call_parse(rows, 1, words, &call, &err));
	assert_int_equal(call.argument_count, 0);
}

static void every_row_is_complete(void **state)
{
	struct call call;
	struct err err;

	(void)state;
	for (const struct command *const *row = commands; *row; row++) {
		int count = 0;

		assert_non_null((*row)->run);
		assert_non_null((*row)->arguments);
		assert_non_null((*row)->description);
		assert_true(strlen((*row)->summary) > 0);
		assert_true((*row)->least_arguments <= (*row)->most_arguments);
		assert_true((*row)->most_arguments <= CALL_ARGUMENTS);
		assert_ptr_equal(call_find(commands, (*row)->name), *row);
		assert_true(text_starts((*row)->example, "outbox-relay "));
		assert_true(parse((*row)->example + strlen("outbox-relay "), &call, &err));
		assert_ptr_equal(call.command, *row);
		while ((*row)->options && (*row)->options[count].name)
			count++;
		assert_true(count <= CALL_OPTIONS);
	}
}

static void help_and_reference_name_every_option(void **state)
{
	OWNED(text_finish) struct text reference = {0};

	(void)state;
	help_markdown(&reference);
	for (const struct command *const *row = commands; *row; row++) {
		OWNED(text_finish) struct text help = {0};
		owned_text char *heading = xformat("\n## %s\n", (*row)->name);

		help_command(*row, &help);
		assert_non_null(strstr(reference.data, heading));
		for (const struct command_option *option = (*row)->options; option && option->name;
		     option++) {
			owned_text char *name = xformat("--%s", option->name);

			assert_non_null(strstr(help.data, name));
			assert_non_null(strstr(reference.data, name));
		}
	}
}

static size_t columns_of_line(const char *line)
{
	size_t columns = 0;

	for (; *line && *line != '\n'; line++)
		columns += (*line & 0xC0) != 0x80; /* a character begins */
	return columns;
}

static void expect_narrow(const struct text *help)
{
	for (const char *at = help->data; *at; at += strcspn(at, "\n") + 1)
		assert_true(columns_of_line(at) <= 80);
}

static void help_is_aligned_by_columns(void **state)
{
	static const struct command_option options[] = {
	    {"force", "WORD,…", "Starts at column 28."}, {0}};
	static const struct command command = {.name = "drop",
	    .arguments = "",
	    .summary = "",
	    .options = options,
	    .example = "",
	    /* a line of 79 columns and 151 bytes */
	    .description =
		"… … … … … … … … … … … … … … … … … … … … … … … … … … … … … … … … … … … … 80 wide"};
	OWNED(text_finish) struct text help = {0};

	(void)state;
	help_command(&command, &help);
	assert_non_null(strstr(help.data, "\n  --force WORD,…            Starts at column 28.\n"));
	assert_non_null(strstr(help.data, "… 80 wide\n"));
}

static void the_option_table_names_each_partitioned_table(void **state)
{
	(void)state;
	for (const struct command *const *row = commands; *row; row++)
		for (const struct command_option *option = (*row)->options; option && option->name;
		     option++)
			for (int i = 0; i < PARTITION_TABLES && text_equal(option->name, "table");
			     i++)
				assert_non_null(strstr(option->help, partition_tables[i]));
}

static void help_fits_eighty_columns(void **state)
{
	(void)state;
	for (const struct command *const *row = commands; *row; row++) {
		OWNED(text_finish) struct text help = {0};

		help_command(*row, &help);
		expect_narrow(&help);
		assert_non_null(strstr(help.data, (*row)->example));
	}
}

static void the_usage_names_every_command_in_a_screen(void **state)
{
	OWNED(text_finish) struct text usage = {0};
	int lines = 0;

	(void)state;
	help_usage(&usage);
	expect_narrow(&usage);
	for (const char *at = usage.data; *at; at += strcspn(at, "\n") + 1)
		lines++;
	assert_true(lines <= 24);
	for (const struct command *const *row = commands; *row; row++) {
		const char *second = strchr((*row)->name, ' ');

		assert_non_null(strstr(usage.data, second ? second + 1 : (*row)->name));
	}
	for (const struct command_heading *heading = command_headings; heading->text; heading++)
		assert_non_null(strstr(usage.data, heading->text));
}

static void a_list_of_commands_ends_with_an_example(void **state)
{
	static const char *const groups[] = {NULL, "publisher", "migrate"};

	(void)state;
	for (size_t i = 0; i < sizeof groups / sizeof *groups; i++) {
		OWNED(text_finish) struct text help = {0};

		assert_true(help_list(groups[i], &help));
		expect_narrow(&help);
		assert_non_null(strstr(help.data, "Example:\n  outbox-relay "));
	}
}

static void a_moment_is_read_and_written_in_utc(void **state)
{
	static const struct {
		const char *text;
		int64_t us; /* -1: none */
	} rows[] = {
	    {"1970-01-01", 0},
	    {"2026-01-02", INT64_C(1767312000000000)},
	    {"2026-01-02T03:04", INT64_C(1767323040000000)},
	    {"2026-01-02T03:04:05Z", INT64_C(1767323045000000)},
	    {"2026-01-02T03:04:05.25Z", INT64_C(1767323045250000)},
	    {"2026-01-02T03:04:05.0000019", INT64_C(1767323045000001)},
	    {"2026-01-02T04:04:05+01:00", INT64_C(1767323045000000)},
	    {"2026-01-01T21:34:05.5-05:30", INT64_C(1767323045500000)},
	    {"2026-01-02T03:04:05.Z", -1},
	    {"2026-01-02T03:04:05+1:00", -1},
	    {"2026-01-02T03:04:05+0100", -1},
	    {"2026-01-02T03:04:05+24:00", -1},
	    {"2026-01-02T03:04:05Zulu", -1},
	    {"2026-01-02T03:04:05+01:00Z", -1},
	    {"2026-02-30", -1},
	    {"2026-01-02 03:04", -1},
	    {"2026- 1- 2", -1},
	    {" 2026-01-02", -1},
	    {"2026-01-02T 3:04", -1},
	    {"2026-01-02T03:04: 5", -1},
	    {"2026-1-2", -1},
	    {"26-01-02", -1},
	    {"tomorrow", -1},
	    {"", -1},
	};
	char text[MOMENT_SIZE];

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		int64_t us = -1;
		struct err err;

		assert_int_equal(moment_parse(rows[i].text, &us, &err), rows[i].us >= 0);
		if (rows[i].us >= 0)
			assert_int_equal(us, rows[i].us);
	}
	moment_format(INT64_C(1767323045999999), text);
	assert_string_equal(text, "2026-01-02T03:04:05Z");
	moment_format(-1, text);
	assert_string_equal(text, "1969-12-31T23:59:59Z");
	moment_format_exact(INT64_C(1767323045250000), text);
	assert_string_equal(text, "2026-01-02T03:04:05.25Z");
	moment_format_exact(-1, text);
	assert_string_equal(text, "1969-12-31T23:59:59.999999Z");
	moment_format_exact(0, text);
	assert_string_equal(text, "1970-01-01T00:00:00Z");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_command_has_one_word_or_two),
	    cmocka_unit_test(a_word_that_is_nearly_right_is_suggested),
	    cmocka_unit_test(a_word_that_is_far_off_has_no_suggestion),
	    cmocka_unit_test(a_word_of_any_length_is_compared),
	    cmocka_unit_test(the_version_has_a_short_option),
	    cmocka_unit_test(options_stand_before_and_behind_arguments),
	    cmocka_unit_test(what_is_not_given_has_its_default),
	    cmocka_unit_test(values_are_checked_by_the_row),
	    cmocka_unit_test(the_number_of_arguments_is_checked),
	    cmocka_unit_test(as_many_arguments_are_taken_as_there_is_room_for),
	    cmocka_unit_test(two_dashes_end_the_options),
	    cmocka_unit_test(help_may_be_asked_anywhere),
	    cmocka_unit_test(no_word_names_the_command_of_a_single_row),
	    cmocka_unit_test(every_row_is_complete),
	    cmocka_unit_test(help_and_reference_name_every_option),
	    cmocka_unit_test(help_fits_eighty_columns),
	    cmocka_unit_test(help_is_aligned_by_columns),
	    cmocka_unit_test(the_option_table_names_each_partitioned_table),
	    cmocka_unit_test(the_usage_names_every_command_in_a_screen),
	    cmocka_unit_test(a_list_of_commands_ends_with_an_example),
	    cmocka_unit_test(a_moment_is_read_and_written_in_utc),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
