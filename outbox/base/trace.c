#include "trace.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "clock.h"

static FILE *trace_file;

static void open_trace(void)
{
	const char *path = getenv("OUTBOX_RELAY_FAULT_TRACE");

	trace_file = path ? fopen(path, "ae") : NULL;
}

/* The buffer is written when it is full and at the end of the process, and not at each step. */
void trace_step(const char *name, int64_t number, int64_t other)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, open_trace);
	if (trace_file)
		fprintf(trace_file, "%s %lld %lld %lld\n", name, (long long)number,
		    (long long)other, (long long)clock_us());
}
