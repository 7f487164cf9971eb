#include "bench.h"

#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include "text.h"

static bool is_program(const char *path)
{
	struct stat status;

	return stat(path, &status) == 0 && S_ISREG(status.st_mode) && access(path, X_OK) == 0;
}

/* The path of the name in the folder, malloc'ed; NULL: there is no such program. An empty folder
 * means the current one. */
static char *program_in(const char *folder, int length, const char *name)
{
	char *path = xformat("%.*s/%s", length > 0 ? length : 1, length > 0 ? folder : ".", name);

	if (is_program(path))
		return path;
	free(path);
	return NULL;
}

static char *program_beside_this(const char *name)
{
	char path[PATH_MAX];
	ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);

	path[length > 0 ? length : 0] = '\0';

	const char *end = strrchr(path, '/');

	return end ? program_in(path, (int)(end - path), name) : NULL;
}

static char *program_on_path(const char *name)
{
	const char *folders = getenv("PATH");
	char *found = NULL;

	for (const char *end; folders && !found; folders = *end ? end + 1 : NULL) {
		end = strchrnul(folders, ':');
		found = program_in(folders, (int)(end - folders), name);
	}
	return found;
}

char *bench_relay_find(const char *named, struct err *err)
{
	char *found;

	/* a name with a slash is a path, as in a shell; another one is looked for on PATH */
	if (named && strchr(named, '/')) {
		found = is_program(named) ? xstrdup(named) : NULL;
	} else {
		found = named ? NULL : program_beside_this("outbox-relay");
		found = found ? found : program_on_path(named ? named : "outbox-relay");
	}
	if (!found && named)
		err_set(err, ERR_CONFIG,
		    "--relay %s: there is no such program; name an outbox-relay that can be run",
		    named);
	else if (!found)
		err_set(err, ERR_CONFIG,
		    "there is no program outbox-relay in the folder of outbox-relay-bench or on "
		    "PATH; name the one to measure with --relay PROGRAM");
	return found;
}
