/*
 * Routes commands to the nodes of a cluster. [connections] opens and greets them; [slots] learns
 * which node serves which slot; [a batch] sends commands, and again those that were redirected.
 * A single server takes a short way: its commands are sent while they are said.
 */
#include "redis_servers.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include "clock.h"
#include "redis_sentinel.h"
#include "redis_slots.h"

enum {
	MOST_ROUNDS = 50,     /* redirections of a batch */
	ASK_AGAIN_MS = 10000, /* after a question that no Sentinel answered */
	INFO_MS = 1000,       /* how old an answer to INFO may be when it is judged */
	ASK_MS = 1000, /* between two questions to the Sentinels while the connection is open */
	PAUSE_MS = 20, /* before a command is repeated that a moving slot refused */
	NO_COMMAND = -1
};

enum mode { MODE_UNKNOWN, MODE_SINGLE, MODE_CLUSTER };

struct node {
	struct redis_address address;
	struct redis *redis; /* NULL: not connected */
	int64_t info_ms;     /* when it answered INFO, by clock_ms */
	char *info;          /* its answer to INFO; "": it does not know the command */
	bool greeted;
	/* The commands that were sent and not answered: indexes, or NO_COMMAND for ASKING. */
	int64_t *sent;
	size_t count, room;
};

struct command {
	size_t begin, length; /* in `bytes` */
	int slot;
	int ask; /* node of a redirection that holds for one time; REDIS_NO_NODE: none */
	bool sent, answered; /* sent: its answer is to come */
};

struct redis_servers {
	const struct redis_address *address;
	redis_greet *greet;
	void *context;
	enum mode mode;
	struct redis_sentinel sentinel; /* asked if the address has a master */
	int64_t ask_at;                 /* clock_ms */
	int single;                     /* node, unless it is a cluster */
	bool without_info;              /* the server does not know INFO */
	struct node *nodes;
	int node_count;
	int16_t node_of[REDIS_SLOTS]; /* of a cluster */
	bool stale;                   /* node_of may be wrong */
	unsigned loads;               /* of node_of */

	struct text bytes;
	struct command *commands;
	size_t count, room;

	/* while answers are heard */
	int hearing; /* node */
	redis_see *see;
	void *see_context;
	bool pause;
	char *refusal;
	int refused_by;
};

struct redis_servers *redis_servers_create(
    const struct redis_address *address, redis_greet *greet, void *context)
{
	struct redis_servers *servers = xcalloc(1, sizeof *servers);

	servers->address = address;
	servers->sentinel.address = address;
	servers->greet = greet;
	servers->context = context;
	return servers;
}

bool redis_servers_are_cluster(const struct redis_servers *servers)
{
	return servers->mode == MODE_CLUSTER;
}

bool redis_servers_serves(const struct redis_servers *servers, int node, int slot)
{
	return servers->mode != MODE_CLUSTER || servers->node_of[slot] == node;
}

bool redis_info_is(const char *info, const char *name, const char *value)
{
	size_t length = strlen(name);

	for (const char *line = info; line; line = strchr(line, '\n')) {
		line += *line == '\n';
		if (strncmp(line, name, length) == 0 && line[length] == ':')
			return text_starts(line + length + 1, value);
	}
	return false;
}

/* --- connections ----------------------------------------------------------------------------- */

static void disconnect_node(struct node *node)
{
	redis_destroy(node->redis);
	free(node->info);
	node->redis = NULL;
	node->info = NULL;
	node->greeted = false;
	node->count = 0;
}

static void forget_commands(struct redis_servers *servers)
{
	text_clear(&servers->bytes);
	servers->count = 0;
}

void redis_servers_close(struct redis_servers *servers)
{
	for (int i = 0; i < servers->node_count; i++)
		disconnect_node(&servers->nodes[i]);
	forget_commands(servers);
	servers->stale = true;
}

void redis_servers_destroy(struct redis_servers *servers)
{
	if (!servers)
		return;
	redis_servers_close(servers);

	for (int i = 0; i < servers->node_count; i++) {
		redis_address_finish(&servers->nodes[i].address);
		free(servers->nodes[i].sent);
	}
	free(servers->nodes);
	free(servers->commands);
	free(servers->refusal);
	text_finish(&servers->bytes);
	free(servers);
}

/* The node with this place; it is added if it is new. host NULL: the socket of the address. */
static int node_at(struct redis_servers *servers, const char *host, int port)
{
	for (int i = 0; i < servers->node_count; i++)
		if (servers->nodes[i].address.port == port &&
		    text_equal(servers->nodes[i].address.host, host))
			return i;
	servers->nodes =
	    xrealloc(servers->nodes, (size_t)(servers->node_count + 1) * sizeof *servers->nodes);
	servers->nodes[servers->node_count] = (struct node){0};
	redis_address_copy(
	    servers->address, host, port, &servers->nodes[servers->node_count].address);
	return servers->node_count++;
}

static int left_ms(int64_t end)
{
	int64_t left = end - clock_ms();

	return left > 0 ? (int)left : 0;
}

static void keep_info(void *context, size_t number, const struct redis_answer *answer)
{
	(void)number;
	if (answer->kind == REDIS_TEXT)
		*(char **)context = xstrdup(answer->text);
}

/* A server may close the connection after the error: the caller connects again. */
static bool ask_info(struct redis_servers *servers, struct node *node, int64_t end, struct err *err)
{
	if (servers->without_info) {
		node->info = xstrdup("");
		node->info_ms = clock_ms();
		return true;
	}

	redis_sayf(node->redis, "INFO");
	if (redis_hear(node->redis, left_ms(end), keep_info, &node->info, err)) {
		node->info_ms = clock_ms();
		/* the answer of a broken server may be no text */
		node->info = node->info ? node->info : xstrdup("");
		return true;
	}

	/* another error, as of a missing right, must not let an unfit server pass for a fit one */
	const char *refusal = redis_refusal(node->redis);
	servers->without_info = refusal && text_starts(refusal, "ERR unknown command");
	return false;
}

static bool try_node(struct redis_servers *servers, struct node *node, int64_t end, struct err *err)
{
	node->redis = redis_connect(&node->address, left_ms(end), err);
	if (node->redis && ask_info(servers, node, end, err))
		return true;
	disconnect_node(node);
	return false;
}

/* A connection that the server closed while it was idle is made anew. */
static bool open_node(struct redis_servers *servers, int number, int64_t end, struct err *err)
{
	struct node *node = &servers->nodes[number];
	bool without_info = servers->without_info;

	if (node->redis && redis_is_open(node->redis))
		return true;
	disconnect_node(node);
	return try_node(servers, node, end, err) ||
	       (servers->without_info != without_info && try_node(servers, node, end, err));
}

static bool connect_node(struct redis_servers *servers, int number, int64_t end, struct err *err)
{
	struct node *node = &servers->nodes[number];

	/* its role and its clock count now, and not when it was opened */
	if (node->redis && !node->greeted && clock_ms() - node->info_ms > INFO_MS)
		disconnect_node(node);
	if (open_node(servers, number, end, err) && !node->greeted)
		node->greeted =
		    servers->greet(servers->context, node->redis, node->info, number, end, err);
	if (node->greeted)
		return true;
	disconnect_node(node);
	return false;
}

/* --- slots ----------------------------------------------------------------------------------- */

struct slots_answer {
	const char *host;
	bool readable;
	struct redis_slots slots;
};

static void see_slots(void *context, size_t number, const struct redis_answer *answer)
{
	struct slots_answer *seen = context;

	(void)number;
	seen->readable = redis_slots_read(answer, seen->host, &seen->slots);
}

static void take_slots(struct redis_servers *servers, struct redis_slots *slots)
{
	int16_t *number = xcalloc((size_t)slots->count + 1, sizeof *number);

	for (int i = 0; i < slots->count; i++)
		number[i] = (int16_t)node_at(servers, slots->nodes[i].host, slots->nodes[i].port);
	for (int slot = 0; slot < REDIS_SLOTS; slot++)
		servers->node_of[slot] = slots->node_of[slot] == REDIS_NO_NODE
					     ? REDIS_NO_NODE
					     : number[slots->node_of[slot]];
	free(number);
	redis_slots_finish(slots);
	servers->stale = false;
}

/* The node is connected. */
static bool ask_slots(struct redis_servers *servers, int number, int64_t end, struct err *err)
{
	struct node *node = &servers->nodes[number];
	struct slots_answer seen = {.host = node->address.host};

	redis_sayf(node->redis, "CLUSTER SLOTS");
	if (!redis_hear(node->redis, left_ms(end), see_slots, &seen, err)) {
		disconnect_node(node);
		return false;
	}
	if (!seen.readable)
		return err_set(err, ERR_RETRY,
		    "%s: its answer to CLUSTER SLOTS is no list of slots", node->address.place);
	take_slots(servers, &seen.slots);
	return true;
}

static bool refuse_mixture(const struct redis_servers *servers, struct err *err)
{
	return err_set(err, ERR_CONFIG,
	    "%s: url has several addresses, which only a cluster may have, and not all of them are "
	    "its nodes: name nodes of one cluster, or one server",
	    servers->address->place);
}

static bool refuse_sentinel(const struct node *node, struct err *err)
{
	return err_set(err, ERR_CONFIG,
	    "%s: this is a Sentinel: write url=redis+sentinel://, its address, and /MASTER",
	    node->address.place);
}

/* So that a node that loses its data later is noticed also before the first command to it. */
static bool greet_masters(struct redis_servers *servers, int64_t end, struct err *err)
{
	for (int slot = 0; slot < REDIS_SLOTS; slot++) {
		int number = servers->node_of[slot];
		if (number != REDIS_NO_NODE && !servers->nodes[number].greeted &&
		    !connect_node(servers, number, end, err))
			return false;
	}
	return true;
}

/* Asks the addresses of the url, all that answer: they must agree. */
static bool learn_mode(struct redis_servers *servers, int64_t end, struct err *err)
{
	const struct redis_address *address = servers->address;
	int singles = 0, clusters = 0;

	for (int i = 0; i < address->seed_count; i++) {
		int64_t now = clock_ms(), until = now + (end - now) / (address->seed_count - i);
		int number = node_at(servers, address->seeds[i].host, address->seeds[i].port);
		if (!open_node(servers, number, until, err)) {
			if (err->kind != ERR_RETRY)
				return false;
			continue;
		}
		if (redis_info_is(servers->nodes[number].info, "redis_mode", "sentinel"))
			return refuse_sentinel(&servers->nodes[number], err);
		bool cluster = redis_info_is(servers->nodes[number].info, "redis_mode", "cluster");
		singles += !cluster;
		if (!cluster)
			continue;
		if (ask_slots(servers, number, until, err))
			clusters++;
		else if (err->kind != ERR_RETRY)
			return false;
	}

	if (singles + clusters == 0)
		return false; /* *err: of the last one */
	if (singles && (clusters || address->seed_count > 1))
		return refuse_mixture(servers, err);
	servers->mode = clusters ? MODE_CLUSTER : MODE_SINGLE;
	if (!clusters || greet_masters(servers, end, err))
		return true;
	servers->mode = MODE_UNKNOWN;
	return false;
}

/*
 * Begins with another node each time: a node that the rest of the cluster has left behind would
 * answer with slots of the past for ever.
 */
static bool load_slots(struct redis_servers *servers, int64_t end, struct err *err)
{
	int count = servers->node_count, first = (int)(servers->loads++ % (unsigned)count);

	err_set(err, ERR_RETRY, "%s: no node of the cluster answers", servers->address->place);
	for (int i = 0; i < count; i++) {
		int64_t now = clock_ms(), until = now + (end - now) / (count - i);
		int number = (first + i) % count;
		if (open_node(servers, number, until, err) &&
		    ask_slots(servers, number, until, err))
			return true;
	}
	return false;
}

/*
 * A server that becomes a replica closes its connections, but takes writes, which will be lost,
 * until it knows: so this asks the Sentinels also while the connection is open, if they answer.
 */
static bool follow_master(struct redis_servers *servers, int64_t end, struct err *err)
{
	owned_text char *host = NULL;
	struct node *node = servers->node_count ? &servers->nodes[servers->single] : NULL;
	bool open = node && node->greeted && redis_is_open(node->redis);
	int port;

	servers->mode = MODE_SINGLE;
	if (open && clock_ms() < servers->ask_at)
		return true;
	/* Sentinels that hang must not use up the time of a master that works. */
	int64_t now = clock_ms(), until = open ? now + (end - now) / 4 : end;
	bool answered = redis_sentinel_ask(&servers->sentinel, until, &host, &port, err);
	servers->ask_at = clock_ms() + (answered ? ASK_MS : ASK_AGAIN_MS);
	if (!answered)
		return open;

	int number = node_at(servers, host, port);
	if (open && number != servers->single)
		disconnect_node(&servers->nodes[servers->single]);
	servers->single = number;
	return connect_node(servers, number, end, err);
}

bool redis_servers_begin(struct redis_servers *servers, int64_t end, struct err *err)
{
	forget_commands(servers);
	if (servers->address->master)
		return follow_master(servers, end, err);
	if (servers->mode == MODE_UNKNOWN && !learn_mode(servers, end, err))
		return false;
	if (servers->mode == MODE_SINGLE)
		return connect_node(servers, servers->single, end, err);
	return !servers->stale || load_slots(servers, end, err);
}

/* --- a batch --------------------------------------------------------------------------------- */

static void note_sent_command(struct node *node, int64_t command)
{
	if (node->count == node->room) {
		node->room = node->room ? 2 * node->room : 64;
		node->sent = xrealloc(node->sent, node->room * sizeof *node->sent);
	}
	node->sent[node->count++] = command;
}

static void say_to_node(struct redis_servers *servers, struct node *node, size_t i)
{
	struct command *command = &servers->commands[i];

	redis_say_bytes(node->redis, servers->bytes.data + command->begin, command->length);
	note_sent_command(node, (int64_t)i);
	command->sent = true;
}

static bool send_command(struct redis_servers *servers, size_t i, int64_t end, struct err *err)
{
	static const char asking[] = "*1\r\n$6\r\nASKING\r\n";
	struct command *command = &servers->commands[i];
	bool asks = command->ask != REDIS_NO_NODE;
	int number = asks ? command->ask : servers->node_of[command->slot];

	if (number == REDIS_NO_NODE) {
		servers->stale = true;
		return err_set(err, ERR_RETRY, "%s: no node of the cluster serves slot %d",
		    servers->address->place, command->slot);
	}
	struct node *node = &servers->nodes[number];
	/* the first command of this round: later ones find the connection in use */
	if (node->count == 0 && !connect_node(servers, number, end, err)) {
		servers->stale = true;
		return false;
	}

	if (asks) {
		redis_say_bytes(node->redis, asking, sizeof asking - 1);
		note_sent_command(node, NO_COMMAND);
		command->ask = REDIS_NO_NODE;
	}
	say_to_node(servers, node, i);
	return true;
}

/* The nodes work on the first commands while the others are said. */
static void send_early(struct redis_servers *servers, size_t i)
{
	int number = servers->node_of[servers->commands[i].slot];
	struct node *node = number == REDIS_NO_NODE ? NULL : &servers->nodes[number];

	/* a command that needs a new connection waits for redis_servers_hear, which can fail */
	if (node && node->greeted && (node->count > 0 || redis_is_open(node->redis)))
		say_to_node(servers, node, i);
}

void redis_servers_say(struct redis_servers *servers, struct redis_word key,
    const struct redis_word *words, size_t count)
{
	if (servers->mode == MODE_SINGLE) {
		redis_say(servers->nodes[servers->single].redis, words, count);
		return;
	}
	if (servers->count == servers->room) {
		servers->room = servers->room ? 2 * servers->room : 64;
		servers->commands =
		    xrealloc(servers->commands, servers->room * sizeof *servers->commands);
	}

	size_t begin = servers->bytes.length;
	redis_format(&servers->bytes, words, count);
	servers->commands[servers->count++] = (struct command){begin, servers->bytes.length - begin,
	    redis_slot(key.bytes, key.length), REDIS_NO_NODE, false, false};
	send_early(servers, servers->count - 1);
}

/* True: the command is to be sent again. */
static bool follow_redirection(
    struct redis_servers *servers, struct command *command, const char *error)
{
	struct redis_place place;
	int slot;
	bool ask;

	if (text_starts(error, "TRYAGAIN") || text_starts(error, "CLUSTERDOWN")) {
		servers->pause = servers->stale = true;
		return true;
	}
	if (!redis_slots_redirection(
		error, servers->nodes[servers->hearing].address.host, &slot, &place, &ask))
		return false;
	int node = node_at(servers, place.host, place.port);
	free(place.host);
	if (ask)
		command->ask = node;
	else {
		servers->node_of[slot] = (int16_t)node;
		servers->stale = true; /* the next batch reads the whole map */
	}
	return true;
}

static void see_from_node(void *context, size_t number, const struct redis_answer *answer)
{
	struct redis_servers *servers = context;
	int64_t i = servers->nodes[servers->hearing].sent[number];

	if (i == NO_COMMAND)
		return;
	struct command *command = &servers->commands[i];
	command->sent = false;
	if (answer->kind == REDIS_ERROR && follow_redirection(servers, command, answer->text))
		return;

	command->answered = true;
	if (answer->kind != REDIS_ERROR)
		servers->see(servers->see_context, (size_t)i, answer);
	/* a later error may be a consequence of the first one */
	else if (!servers->refusal) {
		servers->refusal = xstrdup(answer->text);
		servers->refused_by = servers->hearing;
	}
}

/* Hears all nodes, also after a failure of one: their answers count. */
static bool hear_nodes(struct redis_servers *servers, int64_t end, struct err *err)
{
	bool heard = true;

	for (int i = 0; i < servers->node_count; i++)
		if (servers->nodes[i].count > 0)
			redis_flush(servers->nodes[i].redis);
	for (int i = 0; i < servers->node_count; i++) {
		struct err later;
		if (servers->nodes[i].count == 0)
			continue;
		/* an index, since see_from_node may add nodes, which moves them */
		servers->hearing = i;
		if (!redis_hear_all(servers->nodes[i].redis, left_ms(end), see_from_node, servers,
			heard ? err : &later)) {
			disconnect_node(&servers->nodes[i]);
			servers->stale = true;
			heard = false;
		}
		servers->nodes[i].count = 0;
	}
	return heard;
}

static bool send_unanswered(
    struct redis_servers *servers, size_t *ret_count, int64_t end, struct err *err)
{
	*ret_count = 0;
	for (size_t i = 0; i < servers->count; i++) {
		const struct command *command = &servers->commands[i];
		if (command->answered)
			continue;
		if (!command->sent && !send_command(servers, i, end, err))
			return false;
		++*ret_count;
	}
	return true;
}

static bool hear_cluster(struct redis_servers *servers, int64_t end, struct err *err)
{
	size_t count;

	for (int round = 0; round < MOST_ROUNDS;) {
		/* pauses end with the timeout, redirections that never end with their number */
		round += !servers->pause;
		if (servers->pause) {
			poll(NULL, 0, PAUSE_MS);
			servers->pause = false;
			if (!load_slots(servers, end, err))
				return false;
		}
		if (!send_unanswered(servers, &count, end, err))
			return false;
		if (count == 0)
			return true;
		if (!hear_nodes(servers, end, err))
			return false;
		if (clock_ms() >= end)
			break;
	}
	return err_set(err, ERR_RETRY,
	    "%s: the cluster redirects commands, or has slots without a node, for longer than the "
	    "timeout",
	    servers->address->place);
}

bool redis_servers_hear(
    struct redis_servers *servers, int64_t end, redis_see *see, void *context, struct err *err)
{
	if (servers->mode == MODE_SINGLE)
		return redis_hear(
		    servers->nodes[servers->single].redis, left_ms(end), see, context, err);

	servers->see = see;
	servers->see_context = context;
	servers->pause = false;
	bool heard = hear_cluster(servers, end, err);
	/* answers that nobody has read would be taken for those of the next batch */
	for (int i = 0; i < servers->node_count; i++)
		if (servers->nodes[i].count > 0)
			disconnect_node(&servers->nodes[i]);
	forget_commands(servers);
	if (heard && servers->refusal) {
		servers->stale = true;
		heard = redis_refuse(
		    servers->nodes[servers->refused_by].address.place, servers->refusal, err);
	}
	free(servers->refusal);
	servers->refusal = NULL;
	return heard;
}
