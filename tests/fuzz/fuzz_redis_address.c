/*
 * Any text is the address of a Redis server, or is refused; neither the error nor the place shows a
 * password that it has.
 */
#include <stdlib.h>
#include <string.h>
#include "cleanup.h"
#include "redis_address.h"
#include "text.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool condition)
{
	if (!condition)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct redis_address address;
	struct err err = {0};
	owned_text char *text = xmalloc(size + 1);

	memcpy(text, data, size);
	text[size] = '\0';
	if (redis_address_parse(&(struct redis_access){.url = text}, &address, &err)) {
		require(!address.host != !address.path);
		require(address.path || (address.port > 0 && address.port < 65536));
		require(address.database >= 0 && address.place && address.place[0]);
		require(!strchr(address.place, '@') || address.path);
	} else {
		require(err.kind == ERR_CONFIG && err.message[0]);
	}
	redis_address_finish(&address);
	return 0;
}
