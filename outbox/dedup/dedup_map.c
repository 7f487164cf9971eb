#include "dedup_map.h"

#include <stdio.h>
#include <string.h>
#include "cleanup.h"
#include "key_log.h"

const char *dedup_map_fault(const struct dedup_map_head *head)
{
	if (memcmp(head->magic, DEDUP_MAP_MAGIC, sizeof head->magic) != 0)
		return "is no map";
	if (head->version != DEDUP_MAP_VERSION)
		return "is of another version of the format than this program's";
	return head->units >= KEY_FIRST_UNIT ? NULL : "has a damaged head";
}

bool dedup_map_boot(uint8_t ret_boot[DEDUP_MAP_BOOT])
{
	char text[37] = "";
	owned_file FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");
	bool good = file && fread(text, 1, 36, file) == 36;
	int place = 0;
	for (char *at = text; good && *at && place < DEDUP_MAP_BOOT; at++)
		if (*at != '-') {
			unsigned value;
			good = sscanf(at, "%2x", &value) == 1;
			ret_boot[place++] = (uint8_t)value;
			at++;
		}
	return good && place == DEDUP_MAP_BOOT;
}

bool dedup_map_is_of_this_boot(const struct dedup_map_head *head)
{
	uint8_t boot[DEDUP_MAP_BOOT];
	return dedup_map_boot(boot) && memcmp(boot, head->boot, DEDUP_MAP_BOOT) == 0;
}
