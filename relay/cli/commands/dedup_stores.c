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
	printf("  releases what is done  %s\n", yes_or_no(promise->releases));
	printf("  shared by machines     %s\n", yes_or_no(promise->shared));
	printf("  false positives        %s\n", promise->false_positives);
	printf("  false negatives        %s\n", promise->false_negatives);
	printf("  restart                %s\n", promise->restart);
	printf("  scope                  %s\n", promise->scope);
	printf("  memory                 %s\n", promise->memory);
	printf("  disk                   %s\n\n", promise->disk);
}

static void print_markdown(const struct outbox_dedup_promise *promise)
{
	printf("| `%s` | %s | %s | %s | %s | %s | %s | %s | %s | %s |\n", promise->store,
	    yes_or_no(promise->lossy), yes_or_no(promise->releases), yes_or_no(promise->shared),
	    promise->false_positives, promise->false_negatives, promise->restart, promise->scope,
	    promise->memory, promise->disk);
}

static void print_all(void (*print)(const struct outbox_dedup_promise *promise))
{
	const struct outbox_dedup_promise *promise;
	for (int i = 0; (promise = outbox_dedup_promise(i)); i++)
		print(promise);
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
		puts("| store | lossy | releases what is done | shared by machines | false "
		     "positives | false negatives | restart | scope | memory | disk "
		     "|\n|---|---|---|---|---|---|---|---|---|---|");
		print_all(print_markdown);
	} else {
		print_all(print_store_text);
	}
	return 0;
}

static const struct command_option dedup_stores_options[] = {
    {"json", NULL, "Prints JSON."},
    {"markdown", NULL, "Prints the table of docs/reference/dedup.md."},
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
