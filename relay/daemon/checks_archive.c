#include "checks_archive.h"

#include <string.h>
#include "archive_file.h"
#include "cleanup.h"
#include "text.h"

void checks_archive(struct checks *checks, const struct postgres_settings *postgres)
{
	owned_text char *place = xformat("postgres %s", postgres->name);
	struct err err;
	char *cure;

	if (postgres->retention != RETENTION_ARCHIVE ||
	    archive_folder_check(postgres->archive_path, &err))
		return;

	/* the report has a place of its own for the cure, which ends the message */
	cure = strstr(err.message, "; ");
	if (cure)
		*cure = '\0';
	preflight_add(&checks->report, PREFLIGHT_FAIL, place,
	    cure ? cure + 2 : "set archive_path to a folder that can be written",
	    "archive_path: %s", err.message);
}
