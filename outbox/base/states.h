#pragma once
/*
 * State tables. An object with a life has one enum, one table with a row for each state, and one
 * function that moves it. That function checks the move and the invariant of the new state in test
 * builds. Release builds only store the number.
 * docs/reference/states.md is printed from the tables (tests/unit/test_states.c).
 */
#include <assert.h>
#include <stdbool.h>

/* 1 in a test build: one with fault points, or one that is not optimized. */
#if defined(FAULT_POINTS) || !defined(__OPTIMIZE__)
enum { STATES_CHECKED = 1 };
#else
enum { STATES_CHECKED = 0 };
#endif

struct state_row {
	const char *name;
	unsigned next;       /* the states that may follow, one bit each */
	const char *meaning; /* for an operator */
};

struct state_table {
	const char *object;
	const struct state_row *rows;
	int count;
	int first; /* the state in which an object begins */
};

/* Ends the process of a test build if the table does not allow the move. */
static inline void states_check(const struct state_table *table, int from, int to)
{
	if (STATES_CHECKED)
		assert(table->rows[from].next >> to & 1);
	(void)table, (void)from, (void)to;
}

/* Ends the process if an invariant does not hold; call it only if STATES_CHECKED. */
static inline void states_expect(bool holds)
{
	assert(holds);
	(void)holds;
}
