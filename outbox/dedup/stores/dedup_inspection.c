#include "dedup_inspection.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void dedup_inspection_report(struct dedup_inspection *inspection, const char *file, int64_t byte,
    bool harmless, const char *format, ...)
{
	char what[300];
	va_list arguments;
	va_start(arguments, format);
	vsnprintf(what, sizeof what, format, arguments);
	va_end(arguments);
	const struct dedup_finding finding = {file, byte, harmless, what};
	inspection->part.damaged |= !harmless;
	if (inspection->to->found)
		inspection->to->found(inspection->to->context, &finding);
}

void dedup_inspection_report_foreign(struct dedup_inspection *inspection)
{
	dedup_inspection_report(inspection, inspection->part.file->name, DEDUP_WHOLE_FILE, true,
	    "it is no file of this store, and is left alone");
}

bool dedup_inspection_fail_unless_gone(const char *name, struct err *err)
{
	bool denied = errno == EACCES || errno == EPERM;
	return errno == ENOENT || err_set(err, denied ? ERR_DENIED : ERR_RETRY,
				      "%s cannot be read: %s", name, strerror(errno));
}

void dedup_inspection_end_part(struct dedup_inspection *inspection)
{
	if (inspection->to->part)
		inspection->to->part(inspection->to->context, &inspection->part);
}
