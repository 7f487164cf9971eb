#include <jansson.h>
#include <stdio.h>
#include "commands.h"
#include "dedup.h"
#include "field.h"
#include "text.h"

static const char *yes_or_no(bool value)
{
	return value ? "yes" : "no";
}

static void print_store_text(const struct outbox_dedup_promise *promise)
{
	printf("%s%s\n", promise->store, promise->lossy ? " (lossy: the line must say so)" : "");
	printf("  releases done ids   %s\n", yes_or_no(promise->releases));
	printf("  shared by machines  %s\n", yes_or_no(promise->shared));
	printf("  scope               %s\n", promise->scope);
	printf("  false positives     %s\n", promise->false_positives);
	printf("  false negatives     %s\n", promise->false_negatives);
	printf("  restart             %s\n", promise->restart);
	printf("  memory              %s\n", promise->memory);
	printf("  disk                %s\n\n", promise->disk);
}

static void print_traits(const struct outbox_dedup_promise *promise)
{
	printf("| `%s` | %s | %s | %s | %s |\n", promise->store, yes_or_no(promise->lossy),
	    yes_or_no(promise->releases), yes_or_no(promise->shared), promise->scope);
}

static void print_answers(const struct outbox_dedup_promise *promise)
{
	printf("| `%s` | %s | %s | %s |\n", promise->store, promise->false_positives,
	    promise->false_negatives, promise->restart);
}

static void print_costs(const struct outbox_dedup_promise *promise)
{
	printf("| `%s` | %s | %s |\n", promise->store, promise->memory, promise->disk);
}

static void print_all(void (*print)(const struct outbox_dedup_promise *promise))
{
	const struct outbox_dedup_promise *promise;
	for (int i = 0; (promise = outbox_dedup_promise(i)); i++)
		print(promise);
}

/* Three tables, since one of ten columns is wider than any page. */
static void print_stores_markdown(void)
{
	puts("| store | lossy | releases done ids | shared by machines | scope |\n"
	     "|---|---|---|---|---|");
	print_all(print_traits);

	puts("\n| store | false positives | false negatives | restart |\n|---|---|---|---|");
	print_all(print_answers);

	puts("\n| store | memory | disk |\n|---|---|---|");
	print_all(print_costs);
}

static void print_stores_json(void)
{
	const struct outbox_dedup_promise *promise;
	json_t *stores = json_array();
	for (int i = 0; (promise = outbox_dedup_promise(i)); i++)
		json_array_append_new(stores,
		    json_pack("{s:s, s:b, s:b, s:b, s:s, s:s, s:s, s:s, s:s, s:s}", "store",
			promise->store, "lossy", promise->lossy, "releases", promise->releases,
			"shared", promise->shared, "false_positives", promise->false_positives,
			"false_negatives", promise->false_negatives, "restart", promise->restart,
			"scope", promise->scope, "memory", promise->memory, "disk", promise->disk));
	field_print_json("", stores, JSON_INDENT(2), "\n");
}

static int run_dedup_stores(const struct call *call)
{
	if (call_flag(call, "json")) {
		print_stores_json();
	} else if (call_flag(call, "markdown")) {
		print_stores_markdown();
	} else {
		print_all(print_store_text);
	}
	return 0;
}

static const struct command_option dedup_stores_options[] = {
    {"json", NULL, "Prints JSON."},
    {"markdown", NULL, "Prints the tables of docs/reference/dedup.md."},
    {0},
};

const struct command command_dedup_stores = {
    .name = "dedup stores",
    .arguments = "",
    .summary = "Lists the dedup stores and the promises of each.",
    .description =
	"Shows for each store: false positives (a new id that the store takes for a done one) "
	"and false negatives, the ids that survive a restart, the consumers whose copies it "
	"recognises, and the cost of an id.\n",
    .options = dedup_stores_options,
    .example = "outbox-relay dedup stores",
    .run = run_dedup_stores,
};
