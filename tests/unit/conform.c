/*
 * dedup_conform [integers] [shared] [remembers] [many=N] [false=N] LINE
 *
 * The conformance test on a store that needs a server, which whoever runs it has started: one of
 * tests/integration. The store must be empty.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "dedup_conformance.h"

static void it_is_as_every_store(void **state)
{
	dedup_conform(*state);
}

int main(int count, char **words)
{
	struct dedup_conformance store = {.line = words[count - 1]};
	for (int i = 1; i < count - 1; i++) {
		store.integers |= strcmp(words[i], "integers") == 0;
		store.shared |= strcmp(words[i], "shared") == 0;
		store.remembers |= strcmp(words[i], "remembers") == 0;
		if (strncmp(words[i], "many=", 5) == 0)
			store.many = (int)strtol(words[i] + 5, NULL, 10);
		if (strncmp(words[i], "false=", 6) == 0)
			store.most_false = (int)strtol(words[i] + 6, NULL, 10);
	}
	const struct CMUnitTest tests[] = {
	    {.name = "it_is_as_every_store",
		.test_func = it_is_as_every_store,
		.initial_state = &store},
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
