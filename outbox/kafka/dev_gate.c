/*
 * One thread polls the listeners and all connections. A connection is a pair of sockets: the
 * client's, and one to the mock broker behind the listener. Bytes are collected into whole frames
 * of Kafka's protocol, looked at, and passed on.
 */
#include "dev_gate.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "cleanup.h"
#include "text.h"

enum {
	MOST_BROKERS = 16,
	MOST_FRAME = 128 << 20,
	MOST_WAITING = 8 << 20, /* for a side that reads slowly: then the other one is not read */
	READ_BYTES = 1 << 16,
	PAUSE_US = 10000 /* after an error of poll, most of which pass by themselves */
};

/* The requests and the error that the gate knows, by Kafka's numbers. */
enum { LIST_OFFSETS = 2, METADATA = 3, FIND_COORDINATOR = 10, API_VERSIONS = 18 };
enum { NEWEST_API_VERSIONS = 2, UNSUPPORTED_VERSION = 35 };

/*
 * The newest versions that clients may use: those that the gate can read, and of ListOffsets those
 * that librdkafka 2.0.2 answers well. Its version 4 has a leader epoch of eight bytes, not four.
 */
static const struct limit {
	int16_t api;
	unsigned char newest;
} limits[] = {
    {LIST_OFFSETS, 3}, {METADATA, 2}, {FIND_COORDINATOR, 2}, {API_VERSIONS, NEWEST_API_VERSIONS}};

/* A request whose answer is to be changed. */
struct asked {
	int32_t correlation;
	int16_t api, version;
};

struct side {
	int fd;
	struct text in, out; /* not a whole frame yet; not sent yet */
};

struct pair {
	struct side client, broker;
	struct asked *asked;
	int asked_count;
	bool ended;
};

struct door {
	int fd, port, behind; /* the listener, its port, the mock broker's port */
};

struct dev_gate {
	struct door doors[MOST_BROKERS];
	int door_count;
	struct text bootstrap;
	int stop_fd;
	pthread_t thread;
	bool started;
	struct pair **pairs;
	int pair_count;
};

static void drop_front(struct text *text, size_t count)
{
	if (!count)
		return;
	memmove(text->data, text->data + count, text->length - count);
	text->length -= count;
}

/* --- numbers in a frame ---------------------------------------------------------------------- */

/* False, and nothing moved, where the frame is too short. */
struct frame {
	unsigned char *at, *end;
	bool broken;
};

static unsigned char *skip_bytes(struct frame *frame, int64_t count)
{
	unsigned char *at = frame->at;

	if (frame->broken || count < 0 || frame->end - at < count) {
		frame->broken = true;
		return NULL;
	}
	frame->at += count;
	return at;
}

static int16_t read_int16(struct frame *frame)
{
	unsigned char *at = skip_bytes(frame, 2);

	return at ? (int16_t)(at[0] << 8 | at[1]) : 0;
}

static int32_t read_int32(struct frame *frame)
{
	uint32_t number = 0;
	unsigned char *at = skip_bytes(frame, 4);

	if (at)
		memcpy(&number, at, sizeof number);
	return (int32_t)ntohl(number);
}

/* Length -1 is null. */
static void skip_string(struct frame *frame)
{
	int16_t length = read_int16(frame);

	skip_bytes(frame, length < 0 ? 0 : length);
}

static void write_int32(unsigned char *at, int32_t number)
{
	uint32_t big = htonl((uint32_t)number);

	memcpy(at, &big, sizeof big);
}

/* --- what is changed ------------------------------------------------------------------------- */

/* The port of a mock broker becomes that of the door before it. */
static void change_port(const struct dev_gate *gate, struct frame *frame)
{
	unsigned char *at = frame->at;
	int32_t port = read_int32(frame);

	for (int i = 0; i < gate->door_count && !frame->broken; i++)
		if (gate->doors[i].behind == port)
			write_int32(at, gate->doors[i].port);
}

/*
 * Behind the correlation id: brokers of {id, host, port, rack}, the cluster's id, the controller,
 * and the rest. The mock names no controller, and Java's AdminClient waits for one.
 */
static void change_metadata(const struct dev_gate *gate, struct frame *frame, int16_t version)
{
	int32_t count = read_int32(frame), first = -1;
	unsigned char *controller;

	for (int32_t i = 0; i < count && !frame->broken; i++) {
		int32_t id = read_int32(frame);

		first = i ? first : id;
		skip_string(frame);
		change_port(gate, frame);
		if (version >= 1)
			skip_string(frame);
	}
	if (version >= 2)
		skip_string(frame);
	controller = version >= 1 ? skip_bytes(frame, 4) : NULL;
	if (controller)
		write_int32(controller, first);
}

static void change_coordinator(const struct dev_gate *gate, struct frame *frame, int16_t version)
{
	if (version >= 1)
		read_int32(frame); /* the throttle time */
	read_int16(frame);
	if (version >= 1)
		skip_string(frame); /* the error's text */
	read_int32(frame);
	skip_string(frame);
	change_port(gate, frame);
}

static void limit_version(int16_t api, unsigned char *most)
{
	for (size_t i = 0; i < sizeof limits / sizeof *limits; i++)
		if (limits[i].api == api && (most[0] || most[1] > limits[i].newest)) {
			most[0] = 0;
			most[1] = limits[i].newest;
		}
}

/* Behind the correlation id: the error, and rows of {API, oldest version, newest version}. */
static void limit_versions(struct frame *frame)
{
	int32_t count;

	read_int16(frame);
	count = read_int32(frame);
	for (int32_t i = 0; i < count && !frame->broken; i++) {
		int16_t api = read_int16(frame);
		unsigned char *most;

		read_int16(frame);
		most = skip_bytes(frame, 2);
		if (most)
			limit_version(api, most);
	}
}

static void change_answer(const struct dev_gate *gate, struct pair *pair, struct frame *frame)
{
	int32_t correlation = read_int32(frame);

	for (int i = 0; i < pair->asked_count; i++) {
		struct asked asked = pair->asked[i];

		/* Only answers to the noted requests are changed; all others pass as they are. */
		if (asked.correlation != correlation)
			continue;
		pair->asked[i] = pair->asked[--pair->asked_count];
		if (asked.api == METADATA)
			change_metadata(gate, frame, asked.version);
		else if (asked.api == FIND_COORDINATOR)
			change_coordinator(gate, frame, asked.version);
		else
			limit_versions(frame);
		return;
	}
}

/* --- frames ---------------------------------------------------------------------------------- */

/*
 * As a broker answers a version that it does not know: in the form of version 0, with the versions
 * of ApiVersions that it does know. The client asks again.
 */
static void refuse_version(struct pair *pair, int32_t correlation)
{
	unsigned char answer[20] = {0, 0, 0, 16, 0, 0, 0, 0, 0, UNSUPPORTED_VERSION, 0, 0, 0, 1, 0,
	    API_VERSIONS, 0, 0, 0, NEWEST_API_VERSIONS};

	write_int32(answer + 4, correlation);
	text_append(&pair->client.out, (const char *)answer, sizeof answer);
}

static void note_asked(struct pair *pair, struct asked asked)
{
	pair->asked = xrealloc(pair->asked, (size_t)(pair->asked_count + 1) * sizeof *pair->asked);
	pair->asked[pair->asked_count++] = asked;
}

/* False: it is not passed on. */
static bool take_request(struct pair *pair, struct frame *frame)
{
	struct asked asked;

	asked.api = read_int16(frame);
	asked.version = read_int16(frame);
	asked.correlation = read_int32(frame);
	/* The gate reads answers of these versions only, and cannot change newer ones. */
	if (asked.api == API_VERSIONS && asked.version > NEWEST_API_VERSIONS) {
		refuse_version(pair, asked.correlation);
		return false;
	}
	if (asked.api == API_VERSIONS || asked.api == METADATA || asked.api == FIND_COORDINATOR)
		note_asked(pair, asked);
	return true;
}

/* Passes on the whole frames that have come. */
static void pass_frames(
    const struct dev_gate *gate, struct pair *pair, struct side *from, struct side *to)
{
	size_t passed = 0;

	while (from->in.length - passed >= 4) {
		unsigned char *begin = (unsigned char *)from->in.data + passed;
		struct frame size = {begin, begin + 4, false};
		int32_t length = read_int32(&size);
		struct frame frame = {begin + 4, begin + 4, false};
		bool goes_on = true;

		/* Without the bound, a wrong length would collect bytes for ever. */
		pair->ended |= length < 0 || length > MOST_FRAME;
		if (pair->ended || from->in.length - passed - 4 < (size_t)length)
			break;
		frame.end += length;
		if (from == &pair->client)
			goes_on = take_request(pair, &frame);
		else
			change_answer(gate, pair, &frame);
		if (goes_on)
			text_append(&to->out, (const char *)begin, (size_t)length + 4);
		passed += (size_t)length + 4;
	}
	drop_front(&from->in, passed);
}

/* --- sockets --------------------------------------------------------------------------------- */

static void read_side(const struct dev_gate *gate, struct pair *pair, bool of_client)
{
	struct side *from = of_client ? &pair->client : &pair->broker;
	char bytes[READ_BYTES];
	ssize_t count = recv(from->fd, bytes, sizeof bytes, 0);

	if (count > 0) {
		text_append(&from->in, bytes, (size_t)count);
		pass_frames(gate, pair, from, of_client ? &pair->broker : &pair->client);
	} else if (count == 0 || (errno != EAGAIN && errno != EINTR)) {
		pair->ended = true;
	}
}

static void write_side(struct pair *pair, struct side *side)
{
	ssize_t count;

	if (!side->out.length)
		return;
	count = send(side->fd, side->out.data, side->out.length, MSG_NOSIGNAL);
	if (count > 0)
		drop_front(&side->out, (size_t)count);
	else if (errno != EAGAIN && errno != EINTR)
		pair->ended = true;
}

static struct sockaddr_in loopback_address(int port)
{
	return (struct sockaddr_in){.sin_family = AF_INET,
	    .sin_port = htons((uint16_t)port),
	    .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
}

static void make_prompt(int fd)
{
	int yes = 1;

	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
	fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
}

/* Connecting to loopback does not block. */
static void accept_client(struct dev_gate *gate, const struct door *door)
{
	struct sockaddr_in address = loopback_address(door->behind);
	int client = accept4(door->fd, NULL, NULL, SOCK_CLOEXEC);
	int broker = client < 0 ? -1 : socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	/* A client whose connection is closed tries again by itself. */
	if (broker < 0 || connect(broker, (struct sockaddr *)&address, sizeof address) != 0) {
		if (broker >= 0)
			close(broker);
		if (client >= 0)
			close(client);
		return;
	}
	make_prompt(client);
	make_prompt(broker);

	struct pair *pair = xcalloc(1, sizeof *pair);

	pair->client.fd = client;
	pair->broker.fd = broker;
	gate->pairs = xrealloc(gate->pairs, (size_t)(gate->pair_count + 1) * sizeof(struct pair *));
	gate->pairs[gate->pair_count++] = pair;
}

static void finish_side(struct side *side)
{
	close(side->fd);
	text_finish(&side->in);
	text_finish(&side->out);
}

static void destroy_pair(struct pair *pair)
{
	finish_side(&pair->client);
	finish_side(&pair->broker);
	free(pair->asked);
	free(pair);
}

static void forget_ended_pairs(struct dev_gate *gate)
{
	int kept = 0;

	for (int i = 0; i < gate->pair_count; i++)
		if (gate->pairs[i]->ended)
			destroy_pair(gate->pairs[i]);
		else
			gate->pairs[kept++] = gate->pairs[i];
	gate->pair_count = kept;
}

/* --- the thread ------------------------------------------------------------------------------ */

static short wanted_events(const struct side *side, const struct side *other)
{
	return (short)((side->out.length ? POLLOUT : 0) |
		       (other->out.length < MOST_WAITING ? POLLIN : 0));
}

static void serve_side(const struct dev_gate *gate, struct pair *pair, bool of_client, short events)
{
	if (!pair->ended && (events & (POLLIN | POLLHUP | POLLERR)))
		read_side(gate, pair, of_client);
}

/* The listeners, then both sides of each pair, then what stops the thread. */
static int fill_polls(const struct dev_gate *gate, struct pollfd *polls)
{
	int count = 0;

	for (int i = 0; i < gate->door_count; i++)
		polls[count++] = (struct pollfd){.fd = gate->doors[i].fd, .events = POLLIN};
	for (int i = 0; i < gate->pair_count; i++) {
		const struct pair *pair = gate->pairs[i];

		polls[count++] = (struct pollfd){
		    .fd = pair->client.fd, .events = wanted_events(&pair->client, &pair->broker)};
		polls[count++] = (struct pollfd){
		    .fd = pair->broker.fd, .events = wanted_events(&pair->broker, &pair->client)};
	}
	polls[count++] = (struct pollfd){.fd = gate->stop_fd, .events = POLLIN};
	return count;
}

static void *serve_clients(void *context)
{
	struct dev_gate *gate = context;
	struct pollfd *polls = NULL;

	for (;;) {
		/* Clients that are accepted in this round have no entry in `polls` yet. */
		int pairs = gate->pair_count, count;

		polls = xrealloc(polls, (size_t)(gate->door_count + 2 * pairs + 1) * sizeof *polls);
		count = fill_polls(gate, polls);
		if (poll(polls, (nfds_t)count, -1) < 0) {
			/* Without a pause the thread would take a whole core. */
			if (errno != EINTR)
				usleep(PAUSE_US);
			continue;
		}
		if (polls[count - 1].revents)
			break;
		for (int i = 0; i < pairs; i++) {
			const struct pollfd *both = polls + gate->door_count + 2 * i;

			serve_side(gate, gate->pairs[i], true, both[0].revents);
			serve_side(gate, gate->pairs[i], false, both[1].revents);
			write_side(gate->pairs[i], &gate->pairs[i]->client);
			write_side(gate->pairs[i], &gate->pairs[i]->broker);
		}
		for (int i = 0; i < gate->door_count; i++)
			if (polls[i].revents)
				accept_client(gate, &gate->doors[i]);
		/* Last, since the entries of `polls` have the order of the pairs. */
		forget_ended_pairs(gate);
	}
	free(polls);
	return NULL;
}

/* --- its life -------------------------------------------------------------------------------- */

static bool open_door(struct dev_gate *gate, int behind, int port, struct err *err)
{
	struct door *door = &gate->doors[gate->door_count++];
	struct sockaddr_in address = loopback_address(port);
	socklen_t size = sizeof address;
	int yes = 1;

	door->behind = behind;
	door->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (door->fd < 0)
		return err_set(err, ERR_FATAL, "no socket can be made: %s", strerror(errno));
	setsockopt(door->fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
	if (bind(door->fd, (struct sockaddr *)&address, sizeof address) != 0 ||
	    listen(door->fd, SOMAXCONN) != 0 ||
	    getsockname(door->fd, (struct sockaddr *)&address, &size) != 0)
		return err_set(err, ERR_REJECT,
		    "port %d of 127.0.0.1 cannot be used (%s); give another --port", port,
		    strerror(errno));
	/* With port 0 the system has chosen one. */
	door->port = ntohs(address.sin_port);
	text_addf(
	    &gate->bootstrap, "%s127.0.0.1:%d", gate->bootstrap.length ? "," : "", door->port);
	return true;
}

static bool open_doors(struct dev_gate *gate, const char *servers, int port, struct err *err)
{
	owned_text char *list = xstrdup(servers);
	char *rest = NULL;

	for (char *server = strtok_r(list, ",", &rest); server;
	     server = strtok_r(NULL, ",", &rest)) {
		const char *colon = strrchr(server, ':');
		int64_t behind;

		if (!colon || !text_to_int64(colon + 1, 1, 65535, &behind) ||
		    gate->door_count == MOST_BROKERS)
			return err_set(err, ERR_FATAL, "no address of a mock broker: %s", server);
		if (!open_door(gate, (int)behind, port ? port + gate->door_count : 0, err))
			return false;
	}
	return true;
}

struct dev_gate *dev_gate_create(const char *servers, int port, struct err *err)
{
	struct dev_gate *gate = xcalloc(1, sizeof *gate);

	gate->stop_fd = eventfd(0, EFD_CLOEXEC);
	if (open_doors(gate, servers, port, err)) {
		gate->started = pthread_create(&gate->thread, NULL, serve_clients, gate) == 0;
		if (gate->started)
			return gate;
		err_set(err, ERR_FATAL, "no thread can be started");
	}
	dev_gate_destroy(gate);
	return NULL;
}

void dev_gate_destroy(struct dev_gate *gate)
{
	if (!gate)
		return;

	if (gate->started) {
		eventfd_write(gate->stop_fd, 1);
		pthread_join(gate->thread, NULL);
	}

	for (int i = 0; i < gate->pair_count; i++)
		destroy_pair(gate->pairs[i]);
	free(gate->pairs);
	for (int i = 0; i < gate->door_count; i++)
		if (gate->doors[i].fd >= 0)
			close(gate->doors[i].fd);

	close(gate->stop_fd);
	text_finish(&gate->bootstrap);
	free(gate);
}

const char *dev_gate_bootstrap(const struct dev_gate *gate)
{
	return gate->bootstrap.data;
}
