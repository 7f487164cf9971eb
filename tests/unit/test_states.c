/*
 * State tables are whole, and docs/reference/states.md is printed from them:
 *
 *   build/release/tests/unit/test_states --print > docs/reference/states.md
 *
 * The argument of the test is the page.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "inbox_partition.h"
#include "record_queue.h"
#include "text.h"

static const struct state_table *const tables[] = {
    &record_states,
    &partition_queue_states,
    &stream_states,
    &inbox_partition_states,
    &item_states,
};
enum { TABLES = sizeof tables / sizeof *tables };

static const char *page_path;

static const char introduction[] =
    "# States\n"
    "\n"
    "Each object below has a table of its states in the code, and one function that moves it. Test "
    "builds check each move. `tests/unit/test_states.c` prints this page from the tables.\n";

/* --- the page ------------------------------------------------------------------------------- */

static bool may_follow(const struct state_table *table, int from, int to)
{
	return table->rows[from].next >> to & 1;
}

static void add_diagram(struct text *page, const struct state_table *table)
{
	text_addf(page, "\n```mermaid\nstateDiagram-v2\n    [*] --> %s\n",
	    table->rows[table->first].name);
	for (int from = 0; from < table->count; from++) {
		for (int to = 0; to < table->count; to++)
			if (may_follow(table, from, to))
				text_addf(page, "    %s --> %s\n", table->rows[from].name,
				    table->rows[to].name);
		if (table->rows[from].next == 0)
			text_addf(page, "    %s --> [*]\n", table->rows[from].name);
	}
	text_add(page, "```\n");
}

static void add_rows(struct text *page, const struct state_table *table)
{
	text_add(page, "\n| state | meaning | next |\n|---|---|---|\n");
	for (int from = 0; from < table->count; from++) {
		const char *separator = "";
		text_addf(page, "| %s | %s | ", table->rows[from].name, table->rows[from].meaning);
		for (int to = 0; to < table->count; to++)
			if (may_follow(table, from, to)) {
				text_addf(page, "%s%s", separator, table->rows[to].name);
				separator = ", ";
			}
		text_add(page, table->rows[from].next ? " |\n" : "the end |\n");
	}
}

static char *print_page(void)
{
	struct text page = {0};
	text_add(&page, introduction);
	for (int i = 0; i < TABLES; i++) {
		text_addf(
		    &page, "\n## %c%s\n", tables[i]->object[0] - 'a' + 'A', tables[i]->object + 1);
		add_diagram(&page, tables[i]);
		add_rows(&page, tables[i]);
	}
	return page.data;
}

static void the_page_is_printed_from_the_tables(void **state)
{
	(void)state;
	char *page = print_page();
	char *stored = calloc(1, strlen(page) + 2);
	FILE *file = fopen(page_path, "r");
	assert_non_null(file);
	stored[fread(stored, 1, strlen(page) + 1, file)] = '\0';
	fclose(file);
	assert_string_equal(stored, page);
	free(stored);
	free(page);
}

/* --- the tables ----------------------------------------------------------------------------- */

static void each_state_has_a_name_of_its_own_and_a_meaning(void **state)
{
	(void)state;
	for (int i = 0; i < TABLES; i++)
		for (int a = 0; a < tables[i]->count; a++) {
			assert_non_null(tables[i]->rows[a].name);
			assert_non_null(tables[i]->rows[a].meaning);
			for (int b = 0; b < a; b++)
				assert_string_not_equal(
				    tables[i]->rows[a].name, tables[i]->rows[b].name);
		}
}

static void each_state_is_reached_from_the_first(void **state)
{
	(void)state;
	for (int i = 0; i < TABLES; i++) {
		unsigned reached = 1U << tables[i]->first, before;
		do {
			before = reached;
			for (int s = 0; s < tables[i]->count; s++)
				if (reached >> s & 1)
					reached |= tables[i]->rows[s].next;
		} while (reached != before);
		assert_int_equal(reached, (1U << tables[i]->count) - 1);
	}
}

int main(int count, char **arguments)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(the_page_is_printed_from_the_tables),
	    cmocka_unit_test(each_state_has_a_name_of_its_own_and_a_meaning),
	    cmocka_unit_test(each_state_is_reached_from_the_first),
	};
	if (count != 2) {
		fputs("usage: test_states PAGE | --print\n", stderr);
		return 2;
	}
	page_path = arguments[1];
	if (strcmp(page_path, "--print") == 0) {
		char *page = print_page();
		fputs(page, stdout);
		free(page);
		return 0;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
