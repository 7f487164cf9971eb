#include "state_folder_view.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>
#include "cleanup.h"
#include "state_file_name.h"
#include "text.h"

static bool fail_folder_view(const char *path, const char *what, struct err *err)
{
	enum err_kind kind = errno == EACCES || errno == EPERM     ? ERR_DENIED
			     : errno == ENOENT || errno == ENOTDIR ? ERR_CONFIG
								   : ERR_RETRY;
	return err_set(err, kind, "path=%s: %s: %s", path, what, strerror(errno));
}

/* --- who has it ----------------------------------------------------------------------------- */

/*
 * File systems without a device of their own (major 0: overlay, btrfs) show one number to stat and
 * another one here.
 */
static bool is_lock_of(const char *line, const struct stat *state, long *ret_process)
{
	unsigned major_number, minor_number;
	unsigned long long inode;
	return sscanf(line, "%*d: FLOCK %*s WRITE %ld %x:%x:%llu", ret_process, &major_number,
		   &minor_number, &inode) == 4 &&
	       inode == state->st_ino && major_number == major(state->st_dev) &&
	       (major_number == 0 || minor_number == minor(state->st_dev));
}

/* Trying the lock would take it for a moment, and a process that opens the folder just then would
 * be refused. */
static long find_holder(int folder)
{
	struct stat state;
	char line[200];
	long process;
	owned_file FILE *locks = fopen("/proc/locks", "re");
	if (!locks || fstatat(folder, "lock", &state, 0))
		return 0;
	while (fgets(line, sizeof line, locks))
		if (is_lock_of(line, &state, &process))
			return process > 0 ? process : -1;
	return 0;
}

/* --- files ---------------------------------------------------------------------------------- */

static void judge_name(struct state_file *file)
{
	static const char *const ends[] = {[STATE_FILE_LOG] = "log",
	    [STATE_FILE_MAP] = "map",
	    [STATE_FILE_COUNTS] = "counts",
	    [STATE_FILE_BITS] = "bits"};

	for (int i = 0; i <= STATE_FILE_BITS; i++)
		if (state_file_name_parse(file->name, ends[i], &file->number, &file->sub)) {
			file->kind = (enum state_file_kind)i;
			return;
		}
	file->number = file->sub = 0;
	file->kind = text_equal(file->name, "offset")      ? STATE_FILE_OFFSET
		     : text_equal(file->name, "positions") ? STATE_FILE_POSITIONS
							   : STATE_FILE_OTHER;
}

static int compare_dedup_files(const void *a, const void *b)
{
	const struct state_file *one = a, *other = b;
	if (one->number != other->number)
		return one->number < other->number ? -1 : 1;
	if (one->sub != other->sub)
		return one->sub < other->sub ? -1 : 1;
	return one->kind != other->kind ? (int)one->kind - (int)other->kind
					: strcmp(one->name, other->name);
}

static bool is_folder_own_file(const char *name)
{
	static const char *const names[] = {
	    ".", "..", "window", "window.new", "lock", "positions.new", "files", "files.new", NULL};
	for (int i = 0; names[i]; i++)
		if (text_equal(name, names[i]))
			return true;
	return false;
}

static bool list_folder_files(struct state_folder_view *view, const char *path, struct err *err)
{
	const struct dirent *entry;

	DIR *names = opendir(path);
	if (!names)
		return fail_folder_view(path, "the folder cannot be read", err);

	while ((entry = readdir(names))) {
		if (is_folder_own_file(entry->d_name))
			continue;
		view->files = xrealloc(view->files, (view->count + 1) * sizeof *view->files);
		struct state_file *file = &view->files[view->count++];
		text_copy(file->name, sizeof file->name, entry->d_name);
		judge_name(file);
	}
	closedir(names);
	if (view->count)
		qsort(view->files, view->count, sizeof *view->files, compare_dedup_files);
	return true;
}

/* --- life ----------------------------------------------------------------------------------- */

static bool has_state(const struct state_folder_view *view)
{
	for (size_t i = 0; i < view->count; i++)
		if (view->files[i].kind != STATE_FILE_OTHER)
			return true;
	return false;
}

static bool read_folder_head(struct state_folder_view *view, const char *path, struct err *err)
{
	owned_fd int fd = openat(view->fd, "window", O_RDONLY | O_CLOEXEC | O_NOFOLLOW);

	if (fd < 0 && errno != ENOENT)
		return fail_folder_view(path, "its file 'window' cannot be read", err);
	/* A folder without any state is the wrong path, rather than a damaged one. */
	if (fd < 0 && !has_state(view))
		return err_set(err, ERR_CONFIG,
		    "path=%s: no store of dedup has its state in this folder", path);
	if (fd < 0)
		view->fault =
		    "its file 'window' is missing: the folder would be taken for a new one";
	else if (read(fd, &view->head, sizeof view->head) < 0)
		return fail_folder_view(path, "its file 'window' cannot be read", err);
	else
		view->fault = state_folder_head_fault(&view->head);
	memcpy(view->store, view->head.store, sizeof view->head.store);
	return true;
}

bool state_folder_view_open(struct state_folder_view *ret_view, const char *path, struct err *err)
{
	*ret_view = (struct state_folder_view){
	    .fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW)};
	if (ret_view->fd < 0)
		return fail_folder_view(path, "the folder cannot be opened", err);
	ret_view->holder = find_holder(ret_view->fd);
	return list_folder_files(ret_view, path, err) && read_folder_head(ret_view, path, err);
}

void state_folder_view_close(struct state_folder_view *view)
{
	if (view->fd >= 0)
		close(view->fd);
	free(view->files);
	*view = (struct state_folder_view){.fd = -1};
}
