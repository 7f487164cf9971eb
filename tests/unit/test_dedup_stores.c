/* What holds for every store, tried on each local one: a new store has its row here. Stores with a
 * server behind them are tried by tests/integration/test_dedup_NAME.py. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cleanup.h"
#include "dedup_conformance.h"
#include "dedup_stores.h"
#include "temporary.h"
#include "text.h"

/* remembers: the line is given a path. */
static const struct dedup_conformance stores[] = {
    {.line = "bloom ids=100k", .remembers = true},
    {.line = "exact ids=100k", .remembers = true},
    {.line = "exact ids=100k"},
    {.line = "counting lossy ids=100k", .remembers = true, .most_false = 30},
    {.line = "counting lossy ids=100k counter=8", .remembers = true, .most_false = 30},
    {.line = "bitmap ids=100k", .integers = true, .remembers = true},
    {.line = "bitmap ids=100k window=24h slices=3", .integers = true, .remembers = true},
    {.line = "bitmap lossy form=hash ids=100k", .remembers = true, .most_false = 5},
    {.line = "bitmap lossy form=hash ids=100k window=24h slices=1",
	.remembers = true,
	.most_false = 5},
    {.line = "sequence",
	.integers = true,
	.prefix = "2:orders:1a2b3c4d:0:123:9:",
	.remembers = true},
    {.line = "sequence", .integers = true, .prefix = "2:orders:1a2b3c4d:3:9223372036854775807:0:"},
};
enum { STORES = sizeof stores / sizeof *stores };

static void every_store_is_as_the_others(void **state)
{
	(void)state;
	for (int i = 0; i < STORES; i++) {
		char folder[TEMPORARY];
		struct dedup_conformance store = stores[i];
		assert_true(temporary_make(folder));
		owned_text char *line = xformat("%s path=%s", store.line, folder);
		if (store.remembers)
			store.line = line;
		print_message("%s\n", store.line);
		dedup_conform(&store);
		temporary_remove(folder);
	}
}

static bool is_tried(const struct dedup_store_type *store)
{
	bool tried = false;
	for (int i = 0; i < STORES; i++) {
		OWNED(dedup_spec_finish) struct dedup_spec spec;
		struct err err;
		assert_true(dedup_spec_parse(stores[i].line, &spec, &err));
		tried |= spec.type == store;
	}
	return tried;
}

static void each_local_store_is_tried(void **state)
{
	(void)state;
	for (int i = 0; dedup_stores[i]; i++)
		if (!is_tried(dedup_stores[i]) && !dedup_stores[i]->promise.shared)
			fail_msg("%s has no row", dedup_stores[i]->promise.store);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(every_store_is_as_the_others),
	    cmocka_unit_test(each_local_store_is_tried),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
