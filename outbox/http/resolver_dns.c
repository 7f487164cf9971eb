/*
 * DNS, by c-ares. A lookup is begin_dns, then step_dns until no query is pending:
 *
 *   with a port     the addresses of the name, from the hosts file or from DNS
 *   without one     the SRV records of _grpc._tcp.NAME, or of NAME itself (as Consul has them); the
 *                   addresses of their targets are in the additional section or asked for
 *
 * Each lookup has a channel of its own, so that it reads resolv.conf anew and asks from new ports.
 * c-ares gives no time to live of SRV records: dns_answer.c reads it from the raw answer.
 */
#include "resolver.h"

/* c-ares 1.28 advises ares_query_dnsrec instead of ares_query; 1.18 of Debian 12 lacks it. */
#define CARES_NO_DEPRECATED
#include <arpa/nameser.h>
#include <ares.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <unistd.h>
#include "cleanup.h"
#include "clock.h"
#include "dns_answer.h"
#include "http_list.h"

enum {
	TRY_MS = 500, /* the first; each further try waits twice as long */
	TRIES = 4,
	EVENTS = 16,
	MOST_TARGETS = SERVICE_ADDRESSES,
};

static const char service_prefix[] = "_grpc._tcp.";

struct target {
	struct resolver *resolver;
	char name[DNS_NAME];
	int priority, weight, port;
	int found;       /* addresses */
	bool unclear;    /* a query about it failed */
	bool v4_unclear; /* that about its A record */
};

struct resolver {
	const struct service_url *url;
	char *servers; /* for c-ares; "": those of the system */
	int epoll_fd;
	ares_channel channel;
	bool is_open; /* the channel */
	bool closing; /* callbacks come because the channel is being closed */
	int pending;  /* queries */
	char **asked; /* the names whose SRV records are asked for, one after the other */
	int asked_count, asked_next;
	struct target targets[MOST_TARGETS];
	int target_count;
	struct resolver_result result;
	uint32_t ttl_s;
	/* Why there is no address: the last failure. unclear: no answer came, so there may be one.
	 */
	struct text why;
	bool unclear;
};

/* --- the channel --------------------------------------------------------------------------- */

static void on_ares_socket(void *context, ares_socket_t fd, int readable, int writable)
{
	const struct resolver *resolver = context;
	struct epoll_event event = {.data.fd = fd};

	event.events = (readable ? EPOLLIN : 0u) | (writable ? EPOLLOUT : 0u);
	if (!event.events)
		epoll_ctl(resolver->epoll_fd, EPOLL_CTL_DEL, fd, NULL);
	else if (epoll_ctl(resolver->epoll_fd, EPOLL_CTL_MOD, fd, &event) != 0)
		epoll_ctl(resolver->epoll_fd, EPOLL_CTL_ADD, fd, &event);
}

static int open_channel(struct resolver *resolver)
{
	struct ares_options options = {.timeout = TRY_MS,
	    .tries = TRIES,
	    .sock_state_cb = on_ares_socket,
	    .sock_state_cb_data = resolver};
	int status = ares_init_options(&resolver->channel, &options,
	    ARES_OPT_TIMEOUTMS | ARES_OPT_TRIES | ARES_OPT_SOCK_STATE_CB);

	resolver->is_open = status == ARES_SUCCESS;
	if (status == ARES_SUCCESS && *resolver->servers)
		status = ares_set_servers_ports_csv(resolver->channel, resolver->servers);
	return status;
}

/* Ends the queries that are pending. */
static void close_channel(struct resolver *resolver)
{
	resolver->closing = true;
	if (resolver->is_open)
		ares_destroy(resolver->channel);
	resolver->is_open = resolver->closing = false;
	resolver->pending = 0;
}

/* --- the result of a query ----------------------------------------------------------------- */

static bool is_no_record(int status)
{
	return status == ARES_ENODATA || status == ARES_ENOTFOUND;
}

/* c-ares reports SERVFAIL of all servers as a refused connection. */
static bool is_server_failure(int status)
{
	return status == ARES_ESERVFAIL || status == ARES_ECONNREFUSED;
}

static void note_failure(struct resolver *resolver, const char *name, const char *type, int status)
{
	text_clear(&resolver->why);
	if (is_no_record(status)) {
		text_addf(&resolver->why, "DNS has no %s record of %s", type, name);
		return;
	}
	resolver->unclear = true;
	text_addf(&resolver->why, "the name servers did not answer about the %s record of %s: %s",
	    type, name, ares_strerror(status));
}

static void note_ttl(struct resolver *resolver, uint32_t ttl_s)
{
	if (ttl_s < resolver->ttl_s)
		resolver->ttl_s = ttl_s;
}

static void add_address_found(
    struct resolver *resolver, struct target *target, int family, const void *bytes, uint32_t ttl_s)
{
	struct resolver_result *result = &resolver->result;
	struct service_address address = service_address_make(family, bytes, target->port);

	note_ttl(resolver, ttl_s);
	target->found++;
	if (result->count == SERVICE_ADDRESSES)
		return;
	address.priority = target->priority;
	address.weight = target->weight;
	result->rows[result->count++] = address;
}

static int family_of_type(int type)
{
	return type == ns_t_a ? AF_INET : type == ns_t_aaaa ? AF_INET6 : AF_UNSPEC;
}

/* NULL: the status is, or becomes, a failure. The caller frees the answer. */
static struct dns_answer *parse_raw_answer(int *status, const unsigned char *bytes, int length)
{
	struct dns_answer *answer;

	if (*status != ARES_SUCCESS)
		return NULL;
	answer = xmalloc(sizeof *answer);
	if (dns_answer_parse(bytes, (size_t)length, answer))
		return answer;
	*status = ARES_EBADRESP;
	free(answer);
	return NULL;
}

static void on_target(void *context, int status, int timeouts, unsigned char *bytes, int length)
{
	struct target *target = context;
	struct resolver *resolver = target->resolver;
	owned_text struct dns_answer *answer = NULL;

	(void)timeouts;
	if (resolver->closing)
		return;
	resolver->pending--;
	answer = parse_raw_answer(&status, bytes, length);
	if (status != ARES_SUCCESS) {
		note_failure(resolver, target->name, "address", status);
		target->unclear |= !is_no_record(status);
		return;
	}

	note_ttl(resolver, answer->ttl_s);
	/* The name may be an alias, so the owner of the records is not compared. */
	for (int i = 0; i < answer->count; i++) {
		const struct dns_record *row = &answer->records[i];

		if (!row->is_extra && family_of_type(row->type) != AF_UNSPEC)
			add_address_found(
			    resolver, target, family_of_type(row->type), row->address, row->ttl_s);
	}
}

static void on_target_v4(void *context, int status, int timeouts, unsigned char *bytes, int length)
{
	struct target *target = context;

	target->v4_unclear = status != ARES_SUCCESS && !is_no_record(status);
	on_target(context, status, timeouts, bytes, length);
}

/* --- names with a port --------------------------------------------------------------------- */

/*
 * c-ares does not tell "no A record" from "no answer about it" if there are AAAA records. Without
 * an answer these are a part of the list. The hosts file gives no time to live.
 */
static void ask_for_v4(struct resolver *resolver, const char *name)
{
	struct target *target = &resolver->targets[resolver->target_count++];

	*target = (struct target){.resolver = resolver, .port = resolver->url->port};
	text_copy(target->name, sizeof target->name, name);
	resolver->pending++;
	ares_query(resolver->channel, target->name, ns_c_in, ns_t_a, on_target_v4, target);
}

static void take_host(struct resolver *resolver, const struct ares_addrinfo *found)
{
	struct target target = {.port = resolver->url->port};
	bool has_v4 = false;

	for (const struct ares_addrinfo_cname *alias = found->cnames; alias; alias = alias->next)
		note_ttl(resolver, alias->ttl > 0 ? (uint32_t)alias->ttl : 0);
	for (const struct ares_addrinfo_node *node = found->nodes; node; node = node->ai_next) {
		uint32_t ttl_s = node->ai_ttl > 0 ? (uint32_t)node->ai_ttl : 0;

		has_v4 |= node->ai_family == AF_INET;
		if (node->ai_family == AF_INET)
			add_address_found(resolver, &target, AF_INET,
			    &((const struct sockaddr_in *)(const void *)node->ai_addr)->sin_addr,
			    ttl_s);
		else if (node->ai_family == AF_INET6)
			add_address_found(resolver, &target, AF_INET6,
			    &((const struct sockaddr_in6 *)(const void *)node->ai_addr)->sin6_addr,
			    ttl_s);
	}
	if (!has_v4 && resolver->ttl_s > 0)
		ask_for_v4(resolver, found->name ? found->name : resolver->url->name);
}

static void on_host(void *context, int status, int timeouts, struct ares_addrinfo *found)
{
	struct resolver *resolver = context;

	(void)timeouts;
	if (resolver->closing)
		return;
	resolver->pending--;
	if (status == ARES_SUCCESS)
		take_host(resolver, found);
	else
		note_failure(resolver, resolver->url->name, "address", status);
	ares_freeaddrinfo(found);
}

/* --- SRV records --------------------------------------------------------------------------- */

/* Names of DNS are the same in any case, and with a dot at their end. */
static bool is_same_name(const char *one, const char *other)
{
	size_t one_length = strlen(one), other_length = strlen(other);

	one_length -= one_length && one[one_length - 1] == '.';
	other_length -= other_length && other[other_length - 1] == '.';
	return one_length == other_length && strncasecmp(one, other, one_length) == 0;
}

/* Returns whether the answer has addresses of the target besides its SRV record. */
static bool take_extra_addresses(
    struct resolver *resolver, struct target *target, const struct dns_answer *answer)
{
	bool found = false;

	for (int i = 0; i < answer->count; i++) {
		const struct dns_record *row = &answer->records[i];

		if (!row->is_extra || family_of_type(row->type) == AF_UNSPEC ||
		    !is_same_name(row->owner, target->name))
			continue;
		add_address_found(
		    resolver, target, family_of_type(row->type), row->address, row->ttl_s);
		found = true;
	}
	return found;
}

static void add_target(
    struct resolver *resolver, const struct dns_record *row, const struct dns_answer *answer)
{
	struct target *target = &resolver->targets[resolver->target_count];

	if (resolver->target_count == MOST_TARGETS)
		return;
	resolver->target_count++;
	*target = (struct target){.resolver = resolver,
	    .priority = row->priority,
	    .weight = row->weight,
	    .port = row->port};
	text_copy(target->name, sizeof target->name, row->target);
	if (take_extra_addresses(resolver, target, answer))
		return;
	resolver->pending += 2;
	ares_query(resolver->channel, target->name, ns_c_in, ns_t_a, on_target_v4, target);
	ares_query(resolver->channel, target->name, ns_c_in, ns_t_aaaa, on_target, target);
}

/* A name that begins like this is the name of an SRV record already. */
static bool has_service_prefix(const struct resolver *resolver)
{
	return resolver->url->name[0] == '_';
}

static void ask_for_service(struct resolver *resolver);

static void take_services(struct resolver *resolver, const struct dns_answer *answer)
{
	bool refused = false;
	int services = 0;

	note_ttl(resolver, answer->ttl_s);
	for (int i = 0; i < answer->count; i++) {
		const struct dns_record *row = &answer->records[i];

		if (row->type != ns_t_srv || row->is_extra)
			continue;
		services++;
		/* RFC 2782: the target "." says that there is no such service. */
		refused |= text_equal(row->target, ".");
		if (!text_equal(row->target, ".") && row->port > 0)
			add_target(resolver, row, answer);
	}
	if (resolver->target_count)
		return;
	text_clear(&resolver->why);
	text_addf(&resolver->why, "%s",
	    refused    ? "its SRV record says that there is no such service (target \".\")"
	    : services ? "its SRV records have no port"
		       : "the answer of DNS has no SRV record");
}

static void on_service(void *context, int status, int timeouts, unsigned char *bytes, int length)
{
	struct resolver *resolver = context;
	owned_text struct dns_answer *answer = NULL;
	owned_text char *name = NULL;

	(void)timeouts;
	if (resolver->closing)
		return;
	resolver->pending--;
	answer = parse_raw_answer(&status, bytes, length);
	if (status == ARES_SUCCESS) {
		take_services(resolver, answer);
		return;
	}

	/* A search domain of the system may have broken name servers: the next name may be right.
	 */
	if ((is_no_record(status) || is_server_failure(status)) &&
	    resolver->asked_next < resolver->asked_count) {
		resolver->unclear |= !is_no_record(status);
		ask_for_service(resolver);
		return;
	}
	/* The error names the documented record. */
	name = xformat(
	    "%s%s", has_service_prefix(resolver) ? "" : service_prefix, resolver->url->name);
	note_failure(resolver, name, "SRV", resolver->unclear ? ARES_ESERVFAIL : status);
}

static void ask_for_service(struct resolver *resolver)
{
	resolver->pending++;
	ares_query(resolver->channel, resolver->asked[resolver->asked_next++], ns_c_in, ns_t_srv,
	    on_service, resolver);
}

/* --- names of services --------------------------------------------------------------------- */

static void add_asked(struct resolver *resolver, const char *prefix, const char *domain)
{
	resolver->asked =
	    xrealloc(resolver->asked, (size_t)(resolver->asked_count + 1) * sizeof(char *));
	resolver->asked[resolver->asked_count++] = xformat(
	    "%s%s%s%s", prefix, resolver->url->name, domain ? "." : "", domain ? domain : "");
}

static void forget_asked(struct resolver *resolver)
{
	for (int i = 0; i < resolver->asked_count; i++)
		free(resolver->asked[i]);
	free(resolver->asked);
	resolver->asked = NULL;
	resolver->asked_count = resolver->asked_next = 0;
}

static int count_dots(const char *name)
{
	int dots = 0;

	for (; *name; name++)
		dots += *name == '.';
	return dots;
}

/*
 * With the search domains of the system, in the order of resolv.conf(5). ares_search would do the
 * same, and then say that there is no record when a name server had failed in between.
 */
static void list_asked(struct resolver *resolver, const char *prefix)
{
	struct ares_options options = {0};
	int mask = 0, dots = count_dots(prefix) + count_dots(resolver->url->name);
	bool is_known = ares_save_options(resolver->channel, &options, &mask) == ARES_SUCCESS;
	bool is_first = !is_known || dots >= options.ndots;

	if (is_first)
		add_asked(resolver, prefix, NULL);
	for (int i = 0; is_known && i < options.ndomains; i++)
		add_asked(resolver, prefix, options.domains[i]);
	if (!is_first)
		add_asked(resolver, prefix, NULL);
	if (is_known)
		ares_destroy_options(&options);
}

static void list_services(struct resolver *resolver)
{
	forget_asked(resolver);
	if (!has_service_prefix(resolver))
		list_asked(resolver, service_prefix);
	list_asked(resolver, "");
}

/* --- a lookup ------------------------------------------------------------------------------ */

static void begin_dns(struct resolver *resolver)
{
	const struct ares_addrinfo_hints hints = {
	    .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = ARES_AI_NOSORT};
	int status;

	resolver->result = (struct resolver_result){0};
	resolver->target_count = 0;
	resolver->ttl_s = INT32_MAX;
	resolver->unclear = false;
	text_clear(&resolver->why);

	status = open_channel(resolver);
	if (status != ARES_SUCCESS) {
		resolver->unclear = true;
		text_addf(&resolver->why, "c-ares cannot start: %s", ares_strerror(status));
		return;
	}
	if (!resolver->url->port) {
		list_services(resolver);
		ask_for_service(resolver);
		return;
	}
	resolver->pending++;
	ares_getaddrinfo(resolver->channel, resolver->url->name, NULL, &hints, on_host, resolver);
}

static void serve_channel(struct resolver *resolver)
{
	struct epoll_event events[EVENTS];
	int count = epoll_wait(resolver->epoll_fd, events, EVENTS, 0);

	for (int i = 0; i < count; i++) {
		uint32_t seen = events[i].events;
		int fd = events[i].data.fd;

		/* An error is read and written, so that c-ares meets it. */
		ares_process_fd(resolver->channel,
		    seen & (EPOLLIN | EPOLLERR | EPOLLHUP) ? fd : ARES_SOCKET_BAD,
		    seen & (EPOLLOUT | EPOLLERR) ? fd : ARES_SOCKET_BAD);
	}
	ares_process_fd(resolver->channel, ARES_SOCKET_BAD, ARES_SOCKET_BAD);
}

static enum resolver_progress step_dns(
    struct resolver *resolver, struct resolver_result *ret_result, struct err *err)
{
	if (resolver->pending && resolver->is_open)
		serve_channel(resolver);
	if (resolver->pending)
		return RESOLVER_RUNS;

	close_channel(resolver);
	if (!resolver->result.count) {
		err_set(err, resolver->unclear ? ERR_RETRY : ERR_REJECT, "%s",
		    text_string(&resolver->why));
		return RESOLVER_FAILED;
	}
	*ret_result = resolver->result;
	ret_result->ttl_ms = (int64_t)resolver->ttl_s * 1000;
	/* Without an answer about AAAA the A records do: some name servers always fail about AAAA.
	 */
	for (int i = 0; i < resolver->target_count; i++) {
		const struct target *target = &resolver->targets[i];

		ret_result->is_partial |= target->v4_unclear || (target->unclear && !target->found);
	}
	if (ret_result->is_partial)
		err_set(err, ERR_RETRY, "%s", text_string(&resolver->why));
	return RESOLVER_FOUND;
}

static int dns_fd(const struct resolver *resolver)
{
	return resolver->epoll_fd;
}

static int64_t dns_deadline(const struct resolver *resolver)
{
	struct timeval left, *next;

	if (!resolver->pending)
		return 0;
	next = ares_timeout(resolver->channel, NULL, &left);
	/* Rounded up, or the loop would turn without end for a fraction of a millisecond. */
	return next ? clock_ms() + (int64_t)next->tv_sec * 1000 + next->tv_usec / 1000 + 1
		    : INT64_MAX;
}

/* --- life ---------------------------------------------------------------------------------- */

static void close_dns(struct resolver *resolver)
{
	if (!resolver)
		return;
	close_channel(resolver);
	if (resolver->epoll_fd >= 0)
		close(resolver->epoll_fd);
	forget_asked(resolver);
	text_finish(&resolver->why);
	free(resolver->servers);
	free(resolver);
}

/* Opens a channel only to see whether c-ares takes the servers. */
static bool check_servers(struct resolver *resolver, struct err *err)
{
	int status = open_channel(resolver);

	close_channel(resolver);
	if (status == ARES_SUCCESS)
		return true;
	return err_set(err, *resolver->servers ? ERR_CONFIG : ERR_FATAL,
	    "\"%.200s\" is not a list of addresses (%s); write for example 10.0.0.2 or "
	    "127.0.0.1:5353",
	    resolver->servers, ares_strerror(status));
}

static struct resolver *open_dns(
    const struct service_url *url, const char *servers, struct err *err)
{
	struct resolver *resolver = xcalloc(1, sizeof *resolver);
	OWNED(text_finish) struct text list = {0};

	for (;;) {
		owned_text char *entry = http_list_next(&servers);

		if (!entry)
			break;
		text_addf(&list, "%s%s", list.length ? "," : "", entry);
	}
	resolver->url = url;
	resolver->servers = xstrdup(text_string(&list));
	resolver->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (resolver->epoll_fd < 0)
		err_set(err, ERR_FATAL, "no descriptor for a resolver: %s", strerror(errno));
	else if (check_servers(resolver, err))
		return resolver;
	close_dns(resolver);
	return NULL;
}

const struct resolver_kind resolver_dns = {.open = open_dns,
    .close = close_dns,
    .begin = begin_dns,
    .fd = dns_fd,
    .deadline = dns_deadline,
    .step = step_dns};
