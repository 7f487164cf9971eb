#pragma once
/*
 * The path of each message, for `outbox-relay-bench path`. In a build with -Dfault_points=true the
 * environment variable OUTBOX_RELAY_FAULT_TRACE=FILE makes the process write a line for each step:
 * its name, a number, another number, and clock_us. In other builds a step writes nothing.
 */
#include <stdint.h>

#ifdef FAULT_POINTS
void trace_step(const char *name, int64_t number, int64_t other);
#else
#define trace_step(name, number, other) ((void)0)
#endif
