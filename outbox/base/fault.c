#include "fault.h"
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "text.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* Compares the content: names are literals, but several places may use the same name. */
static bool first_meeting(const char *name)
{
	static const char *met[256];
	static size_t count;

	for (size_t i = 0; i < count; i++)
		if (text_equal(met[i], name))
			return false;
	if (count < sizeof met / sizeof *met)
		met[count++] = name;
	return true;
}

static void list_fault_point(const char *path, const char *name)
{
	char *line = xformat("%s\n", name);
	int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);

	if (fd < 0 || write(fd, line, strlen(line)) < 0)
		abort();
	close(fd);
	free(line);
}

/* Counts the passages of the point that `choice` names; true at the chosen passage. */
static bool is_chosen(const char *choice, const char *name, int64_t *passages)
{
	size_t length = strlen(name);
	int64_t at = 1;

	if (strncmp(choice, name, length) != 0 || (choice[length] && choice[length] != ':'))
		return false;
	if (choice[length] && !text_to_int64(choice + length + 1, 1, INT64_MAX, &at))
		abort();
	return ++*passages == at;
}

void fault_point(const char *name)
{
	static int64_t deaths, stops;
	const char *path = getenv("OUTBOX_RELAY_FAULT_LIST");
	const char *death = getenv("OUTBOX_RELAY_FAULT");
	const char *stop = getenv("OUTBOX_RELAY_FAULT_STOP");

	pthread_mutex_lock(&lock);
	if (path && first_meeting(name))
		list_fault_point(path, name);
	if (death && is_chosen(death, name, &deaths)) {
		kill(getpid(), SIGKILL);
		for (;;)
			pause();
	}
	/* raise, so that this thread stops here and goes on from here. */
	if (stop && is_chosen(stop, name, &stops))
		raise(SIGSTOP);
	pthread_mutex_unlock(&lock);
}
