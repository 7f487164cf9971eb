/*
 * State tables are whole, and docs/reference/states.md and its diagrams are printed from them:
 *
 *   build/release/tests/unit/test_states --print docs && docs/figures/draw
 *
 * The argument of the test is the folder docs.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "bell.h"
#include "inbox_partition.h"
#include "record_queue.h"
#include "text.h"

static const struct state_table *const tables[] = {
    &record_states,
    &partition_queue_states,
    &stream_states,
    &bell_states,
    &inbox_partition_states,
    &item_states,
};
enum { TABLES = sizeof tables / sizeof *tables };

static const char *docs;

static const char introduction[] =
    "# States\n"
    "\n"
    "For each object below, the code has a table of its states and one function that changes its "
    "state. Test builds check each move. `tests/unit/test_states.c` prints this page and its "
    "diagrams from the tables. In a diagram the dot leads to the first state, and last states are "
    "green. *The end* means that the object never changes again; work that goes on later, for "
    "example after an operator helped, goes on with a new object. "
    "[Concepts](../explain/concepts.md) and the [glossary](../explain/glossary.md) explain the "
    "words.\n"
    "\n"
    "These objects are in the memory of a process. Rows of the database have their states "
    "elsewhere: [parked messages](../guide/parked.md) (`waiting`, `dead`, `stalled`, `paused`, "
    "`free`, "
    "`behind`; only an operator moves one out of `dead`), [messages]"
    "(messages.md#the-state-of-a-message), and [ids of the look-back]"
    "(lookback.md#which-states-does-an-id-have). A window has no table: it is open until each of "
    "its rows is acknowledged by Kafka, or moved to `outbox.parked` or `outbox.scheduled`.\n";

/* --- the page ------------------------------------------------------------------------------- */

static bool may_follow(const struct state_table *table, int from, int to)
{
	return table->rows[from].next >> to & 1;
}

/* "record of the publisher": states_record_of_the_publisher */
static void add_figure_name(struct text *name, const struct state_table *table)
{
	text_add(name, "states_");
	for (const char *c = table->object; *c; c++)
		text_addf(name, "%c", *c == ' ' ? '_' : *c);
}

static void add_figure(struct text *page, const struct state_table *table)
{
	text_addf(
	    page, "\n![States of the %s, and the moves between them](../figures/", table->object);
	add_figure_name(page, table);
	text_add(page, ".svg)\n");
}

/* For Graphviz (docs/figures/draw). */
static char *print_diagram(const struct state_table *table)
{
	struct text dot = {0};
	text_addf(&dot, "// States of the %s\n", table->object);
	text_add(&dot, "digraph states {\n\tranksep=0.4\n\tbegin [shape=point]\n");
	for (int s = 0; s < table->count; s++)
		text_addf(&dot, "\t%s%s\n", table->rows[s].name,
		    table->rows[s].next ? "" : " [class=\"store\"]");
	text_addf(&dot, "\tbegin -> %s\n", table->rows[table->first].name);
	for (int from = 0; from < table->count; from++)
		for (int to = 0; to < table->count; to++)
			if (may_follow(table, from, to))
				text_addf(&dot, "\t%s -> %s\n", table->rows[from].name,
				    table->rows[to].name);
	text_add(&dot, "}\n");
	return dot.data;
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
		add_figure(&page, tables[i]);
		add_rows(&page, tables[i]);
	}
	return page.data;
}

/* For each file that is printed: its path and its contents. */
static void with_each_file(void (*act)(const char *path, const char *printed))
{
	for (int i = -1; i < TABLES; i++) {
		struct text path = {0};
		text_addf(&path, "%s/", docs);
		if (i < 0) {
			text_add(&path, "reference/states.md");
		} else {
			text_add(&path, "figures/");
			add_figure_name(&path, tables[i]);
			text_add(&path, ".dot");
		}
		char *printed = i < 0 ? print_page() : print_diagram(tables[i]);
		act(text_string(&path), printed);
		free(printed);
		text_finish(&path);
	}
}

static void write_file(const char *path, const char *printed)
{
	FILE *file = fopen(path, "w");
	if (!file || fputs(printed, file) < 0 || fclose(file) != 0) {
		perror(path);
		exit(1);
	}
}

static void compare_file(const char *path, const char *printed)
{
	char *stored = calloc(1, strlen(printed) + 2);
	FILE *file = fopen(path, "r");
	assert_non_null(file);
	stored[fread(stored, 1, strlen(printed) + 1, file)] = '\0';
	fclose(file);
	assert_string_equal(stored, printed);
	free(stored);
}

static void the_page_and_its_diagrams_are_printed_from_the_tables(void **state)
{
	(void)state;
	with_each_file(compare_file);
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
	    cmocka_unit_test(the_page_and_its_diagrams_are_printed_from_the_tables),
	    cmocka_unit_test(each_state_has_a_name_of_its_own_and_a_meaning),
	    cmocka_unit_test(each_state_is_reached_from_the_first),
	};
	bool print = count == 3 && strcmp(arguments[1], "--print") == 0;
	if (count != 2 && !print) {
		fputs("usage: test_states [--print] DOCS\n", stderr);
		return 2;
	}
	docs = arguments[count - 1];
	if (print) {
		with_each_file(write_file);
		return 0;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
