/*
 * Any text of librdkafka's log, in which a broker writes as well, is a fault or none. The fault
 * fits into its room, and its cure is one of ours.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include "cleanup.h"
#include "connect_fault.h"
#include "text.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool condition)
{
	if (!condition)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct connect_fault fault;
	owned_text char *text = xmalloc(size + 1);

	memcpy(text, data, size);
	text[size] = '\0';
	if (connect_fault_read(text, size > 0 ? data[0] : 0, &fault)) {
		require(strlen(fault.what) < sizeof fault.what);
		require(fault.cure && fault.cure[0]);
	}
	(void)connect_fault_cure(text);
	return 0;
}
