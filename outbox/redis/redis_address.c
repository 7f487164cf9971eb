/*
 * Parses the url of a Redis server or cluster, and checks the files that belong to it. Begin at
 * redis_address_parse; the functions above it read one part of the url each.
 */
#include "redis_address.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "cleanup.h"
#include "hex.h"
#include "text.h"

enum { DEFAULT_PORT = 6379, SENTINEL_PORT = 26379, MOST_DATABASES = 1 << 20, PASSWORD_ROOM = 4096 };

static bool refuse_redis_url(struct err *err, const char *what)
{
	return err_set(err, ERR_CONFIG,
	    "url has %s; write it as redis://:password@127.0.0.1:6379/0 or "
	    "unix:///run/redis/redis.sock",
	    what);
}

/* In place. */
static bool decode_percents(char *text)
{
	char *to = text;

	for (const char *from = text; *from; from++) {
		if (*from != '%') {
			*to++ = *from;
			continue;
		}
		/* An encoded NUL would cut off the rest of the password. */
		if (!hex_read(from + 1, 1, to) || !*to++)
			return false;
		from += 2;
	}
	*to = '\0';
	return true;
}

/* [user]:password, or a password alone. */
static bool read_login(char *login, struct redis_address *address, struct err *err)
{
	char *colon = strchr(login, ':');
	if (colon)
		*colon = '\0';
	address->password = xstrdup(colon ? colon + 1 : login);
	address->user = colon && login[0] ? xstrdup(login) : NULL;
	return (decode_percents(address->password) &&
		   (!address->user || decode_percents(address->user))) ||
	       refuse_redis_url(err, "a percent sign that encodes nothing in its password or user");
}

static bool read_url_number(const char *text, int64_t low, int64_t high, int *ret_number)
{
	int64_t number;
	if (!text_to_int64(text, low, high, &number))
		return false;
	*ret_number = (int)number;
	return true;
}

static bool read_database(const char *text, struct redis_address *address, struct err *err)
{
	return !text || !text[0] || read_url_number(text, 0, MOST_DATABASES, &address->database) ||
	       refuse_redis_url(err, "a database that is no number");
}

/* Cuts off and returns the text before the mark; NULL: the mark is not there. */
static char *cut_at_mark(char *text, const char *mark)
{
	char *at = strstr(text, mark);
	if (at)
		*at = '\0';
	return at ? at + strlen(mark) : NULL;
}

static void add_seed(struct redis_address *address, const char *host, int port)
{
	address->seeds =
	    xrealloc(address->seeds, (size_t)(address->seed_count + 1) * sizeof *address->seeds);
	address->seeds[address->seed_count++] = (struct redis_seed){xstrdup(host), port};
}

static bool read_path(char *rest, struct redis_address *address, struct err *err)
{
	const char *database = cut_at_mark(rest, "?db=");
	if (rest[0] != '/')
		return refuse_redis_url(err, "no path of a socket");
	address->path = xstrdup(rest);
	add_seed(address, NULL, 0);
	address->port = 0;
	address->place = xformat("redis at %s", rest);
	return read_database(database, address, err);
}

/* "127.0.0.1:6379", or "[::1]:6379" */
static char *format_place(const char *host, int port)
{
	return xformat(strchr(host, ':') ? "[%s]:%d" : "%s:%d", host, port);
}

static bool read_seed(char *rest, struct redis_address *address, struct err *err)
{
	const char *port = NULL;
	char *host = rest;
	int number = address->master ? SENTINEL_PORT : DEFAULT_PORT;

	/* In brackets, colons belong to an IPv6 address. */
	if (rest[0] == '[') {
		host++;
		char *behind = cut_at_mark(host, "]");
		if (!behind || (behind[0] && behind[0] != ':'))
			return refuse_redis_url(err, "a bracket without its end");
		port = behind[0] ? behind + 1 : NULL;
	} else
		port = cut_at_mark(rest, ":");
	if (!host[0])
		return refuse_redis_url(err, "no host");
	if (port && !read_url_number(port, 1, 65535, &number))
		return refuse_redis_url(err, "a port that is none");
	add_seed(address, host, number);
	return true;
}

static bool read_hosts(char *rest, bool sentinel, struct redis_address *address, struct err *err)
{
	const char *database = cut_at_mark(rest, "/");

	if (sentinel) {
		char *name = (char *)database;
		database = name ? cut_at_mark(name, "/") : NULL;
		if (!name || !name[0])
			return refuse_redis_url(err,
			    "no name of a master behind its Sentinels, as in "
			    "redis+sentinel://10.0.0.1:26379,10.0.0.2:26379/mymaster");
		address->master = xstrdup(name);
	}
	for (char *next; rest; rest = next) {
		next = cut_at_mark(rest, ",");
		if (!read_seed(rest, address, err))
			return false;
	}
	owned_text char *place = format_place(address->seeds[0].host, address->seeds[0].port);
	address->host = xstrdup(address->seeds[0].host);
	address->port = address->seeds[0].port;
	address->place = xformat("redis at %s", place);
	return read_database(database, address, err);
}

/* The login ends where the path begins, at the last "@/", since a password may contain others.
 * NULL: no login. */
static char *find_path_login_end(char *rest)
{
	char *last = NULL;

	for (char *at = rest[0] == '/' ? NULL : strstr(rest, "@/"); at; at = strstr(at + 1, "@/"))
		last = at;
	return last;
}

static bool read_redis_url(const char *url, struct redis_address *ret_address, struct err *err)
{
	owned_text char *copy = xstrdup(url);
	char *rest = cut_at_mark(copy, "://");
	bool path = text_equal(copy, "unix");

	bool sentinel = rest && cut_at_mark(copy, "+sentinel");

	ret_address->tls = text_equal(copy, "rediss");
	if (!rest || (!path && !ret_address->tls && !text_equal(copy, "redis")) ||
	    (path && sentinel))
		return refuse_redis_url(err, "no redis://, rediss://, redis+sentinel://, "
					     "rediss+sentinel:// or unix:// at its "
					     "beginning");

	/* Behind the last "@" is the host, since a password may contain others. */
	char *at = path ? find_path_login_end(rest) : strrchr(rest, '@');
	if (at) {
		*at = '\0';
		if (!read_login(rest, ret_address, err))
			return false;
		rest = at + 1;
	}
	return path ? read_path(rest, ret_address, err)
		    : read_hosts(rest, sentinel, ret_address, err);
}

static bool check_access(
    const struct redis_address *address, const struct redis_access *access, struct err *err)
{
	bool files = access->tls_ca || access->tls_certificate || access->tls_key;

	if (files && !address->tls)
		return err_set(err, ERR_CONFIG,
		    "tls_ca, tls_certificate and tls_key are for url=rediss://…: change the url, "
		    "or leave "
		    "them out");
	if (access->sentinel_password_file && !address->master)
		return err_set(err, ERR_CONFIG,
		    "sentinel_password_file is for url=redis+sentinel://…: change the url, or "
		    "leave it "
		    "out");
	if (!access->tls_certificate != !access->tls_key)
		return err_set(err, ERR_CONFIG,
		    "%s is missing: a client's certificate needs tls_certificate and tls_key",
		    access->tls_certificate ? "tls_key" : "tls_certificate");
	return !access->password_file || !address->password || !address->password[0] ||
	       err_set(err, ERR_CONFIG,
		   "there is a password in url and one in password_file: leave out one of them");
}

bool redis_address_parse(
    const struct redis_access *access, struct redis_address *ret_address, struct err *err)
{
	*ret_address = (struct redis_address){.port = DEFAULT_PORT};
	if (!read_redis_url(access->url, ret_address, err) ||
	    !check_access(ret_address, access, err))
		return false;
	ret_address->password_file = xstrdup(access->password_file);
	ret_address->sentinel_password_file = xstrdup(access->sentinel_password_file);
	ret_address->tls_ca = xstrdup(access->tls_ca);
	ret_address->tls_certificate = xstrdup(access->tls_certificate);
	ret_address->tls_key = xstrdup(access->tls_key);
	return true;
}

char *redis_address_password(const struct redis_address *address, struct err *err)
{
	owned_file FILE *file = fopen(address->password_file, "re");
	char line[PASSWORD_ROOM] = "";

	if (!file || (!fgets(line, sizeof line, file) && ferror(file))) {
		err_set(err, ERR_RETRY, "%s: password_file %s cannot be read: %s", address->place,
		    address->password_file, strerror(errno));
		return NULL;
	}
	size_t length = strcspn(line, "\r\n");
	if (length == sizeof line - 1) {
		err_set(err, ERR_RETRY,
		    "%s: the first line of password_file %s is longer than %d bytes",
		    address->place, address->password_file, PASSWORD_ROOM - 2);
		return NULL;
	}
	line[length] = '\0';
	/* while somebody replaces the file it may be empty */
	if (!line[0]) {
		err_set(err, ERR_RETRY, "%s: password_file %s is empty: write the password into it",
		    address->place, address->password_file);
		return NULL;
	}
	return xstrdup(line);
}

void redis_access_finish(struct redis_access *access)
{
	free(access->url);
	free(access->password_file);
	free(access->tls_ca);
	free(access->tls_certificate);
	free(access->tls_key);
	free(access->sentinel_password_file);
	*access = (struct redis_access){0};
}

void redis_address_copy(
    const struct redis_address *from, const char *host, int port, struct redis_address *ret_address)
{
	owned_text char *place = host ? format_place(host, port) : NULL;

	*ret_address = (struct redis_address){.host = xstrdup(host),
	    .path = host ? NULL : xstrdup(from->path),
	    .port = port,
	    .database = from->database,
	    .user = xstrdup(from->user),
	    .password = xstrdup(from->password),
	    .password_file = xstrdup(from->password_file),
	    .tls = from->tls,
	    .tls_ca = xstrdup(from->tls_ca),
	    .tls_certificate = xstrdup(from->tls_certificate),
	    .tls_key = xstrdup(from->tls_key),
	    .place = host ? xformat("redis at %s", place) : xstrdup(from->place)};
}

void redis_address_of_sentinel(
    const struct redis_address *from, int number, struct redis_address *ret_address)
{
	const struct redis_seed *seed = &from->seeds[number];

	redis_address_copy(from, seed->host, seed->port, ret_address);
	free(ret_address->user);
	free(ret_address->password);
	free(ret_address->password_file);
	ret_address->user = ret_address->password = NULL;
	ret_address->password_file = xstrdup(from->sentinel_password_file);
	ret_address->database = 0;
}

void redis_address_finish(struct redis_address *address)
{
	for (int i = 0; i < address->seed_count; i++)
		free(address->seeds[i].host);
	free(address->seeds);

	free(address->host);
	free(address->path);
	free(address->user);
	free(address->password);
	free(address->password_file);
	free(address->sentinel_password_file);
	free(address->master);
	free(address->tls_ca);
	free(address->tls_certificate);
	free(address->tls_key);
	free(address->place);
	*address = (struct redis_address){0};
}
