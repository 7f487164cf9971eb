#include "job_owner.h"

#include <unistd.h>
#include "text.h"

char *job_owner_name(void)
{
	char host[64] = "";

	/* a name that is too long may be cut without a NUL: the last byte stays 0 */
	if (gethostname(host, sizeof host - 1) != 0 || host[0] == '\0')
		text_copy(host, sizeof host, "host");
	return xformat("%s:%d", host, (int)getpid());
}
