#include "temporary.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool temporary_make(char ret_path[TEMPORARY])
{
	const char *place = getenv("TMPDIR");
	snprintf(ret_path, TEMPORARY, "%s/outbox.XXXXXX", place ? place : "/tmp");
	return mkdtemp(ret_path);
}

static void remove_folder(const char *path, const char *name)
{
	char inner[2 * TEMPORARY];
	if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
		return;
	snprintf(inner, sizeof inner, "%s/%s", path, name);
	temporary_remove(inner);
}

void temporary_empty(const char *path)
{
	DIR *list = opendir(path);
	const struct dirent *entry;
	while (list && (entry = readdir(list)))
		if (unlinkat(dirfd(list), entry->d_name, 0))
			remove_folder(path, entry->d_name);
	if (list)
		closedir(list);
}

void temporary_remove(const char *path)
{
	temporary_empty(path);
	rmdir(path);
}

void temporary_flip(const char *file, off_t at)
{
	char byte = 0;
	int fd = open(file, O_RDWR | O_CLOEXEC);
	bool read = pread(fd, &byte, 1, at) == 1;
	byte ^= 0x10;
	if (!read || pwrite(fd, &byte, 1, at) != 1)
		abort();
	close(fd);
}
