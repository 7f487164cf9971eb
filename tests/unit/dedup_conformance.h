#pragma once
/*
 * What holds for every store of dedup, tried on one that is opened with a line. test_dedup_stores.c
 * calls this for each local store, and conform.c for those that have a server behind them; a store
 * may have a test program for what is its own. Fails by cmocka.
 */
#include "dedup.h"

struct dedup_conformance {
	const char *line;
	/* The ids are integers below 2^32 as text ("bitmap" takes only those), or any bytes. */
	bool integers;
	const char *prefix; /* of those integers; NULL: none */
	/* Of a shared store: another process's handle sees what is pending here. */
	bool shared;
	int many; /* ids that are done, and as many others; 0: 10,000 */
	/* It may take a new id for one that is done: so many of those, at most. */
	int most_false;
	/* A restart in order (checkpoint, close, open) remembers. */
	bool remembers;
};

/* Each of them begins with a store that is empty. */
void dedup_conform(const struct dedup_conformance *store);
