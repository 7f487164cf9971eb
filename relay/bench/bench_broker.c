/*
 * Finds the brokers of bootstrap.servers among the processes of this machine: the kernel lists the
 * socket that listens on a port, and the process has that socket open.
 */
#include "bench.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "cleanup.h"
#include "text.h"

enum { MOST_SOCKETS = 16, STATE_LISTEN = 0x0A };

struct sockets {
	unsigned long inodes[MOST_SOCKETS];
	int count;
};

/* The ports of a list such as "a:9092,b:9093". */
static bool has_port(const char *servers, unsigned port)
{
	for (const char *at = strchr(servers, ':'); at; at = strchr(at + 1, ':'))
		if (strtoul(at + 1, NULL, 10) == port)
			return true;
	return false;
}

static void find_listeners(const char *path, const char *servers, struct sockets *sockets)
{
	owned_file FILE *file = fopen(path, "re");
	char line[512];

	while (file && fgets(line, sizeof line, file)) {
		unsigned port, state;
		unsigned long inode;

		/* number, local address, remote address, state, queues, timer, retransmits, user,
		 * timeout, inode */
		if (sscanf(line, " %*d: %*[0-9A-F]:%x %*s %x %*s %*s %*s %*u %*u %lu", &port,
			&state, &inode) == 3 &&
		    state == STATE_LISTEN && has_port(servers, port) &&
		    sockets->count < MOST_SOCKETS)
			sockets->inodes[sockets->count++] = inode;
	}
}

/* The process has one of these sockets open. False as well if it belongs to another user. */
static bool has_socket(const char *pid, const struct sockets *sockets)
{
	owned_text char *folder = xformat("/proc/%s/fd", pid);
	DIR *fds = opendir(folder);
	bool found = false;

	for (struct dirent *fd; fds && !found && (fd = readdir(fds));) {
		owned_text char *path = xformat("%s/%s", folder, fd->d_name);
		char target[64] = "";
		unsigned long inode = 0;

		if (readlink(path, target, sizeof target - 1) < 0 ||
		    sscanf(target, "socket:[%lu]", &inode) != 1)
			continue;
		for (int i = 0; i < sockets->count; i++)
			found |= sockets->inodes[i] == inode;
	}
	if (fds)
		closedir(fds);
	return found;
}

static void find_servers(const struct kafka_settings *kafka, struct sockets *ret_sockets)
{
	for (int i = 0; i < kafka->property_count; i++) {
		const struct kafka_property *property = &kafka->properties[i];

		if (!text_equal(property->name, "bootstrap.servers") &&
		    !text_equal(property->name, "metadata.broker.list"))
			continue;
		find_listeners("/proc/net/tcp", property->value, ret_sockets);
		find_listeners("/proc/net/tcp6", property->value, ret_sockets);
	}
}

double bench_broker_cpu(const struct kafka_settings *kafka)
{
	struct sockets sockets = {0};
	double sum = 0;
	DIR *processes;

	find_servers(kafka, &sockets);
	if (sockets.count == 0)
		return 0;

	processes = opendir("/proc");
	for (struct dirent *process; processes && (process = readdir(processes));) {
		int64_t pid;

		if (!text_to_int64(process->d_name, 1, INT32_MAX, &pid) ||
		    !has_socket(process->d_name, &sockets))
			continue;

		double seconds = bench_process_cpu((pid_t)pid, "");

		sum += seconds > 0 ? seconds : 0;
	}
	if (processes)
		closedir(processes);
	return sum;
}
