#include "http_peer.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "cleanup.h"
#include "http_private.h"

bool http_refuse_key(struct err *err, const char **ret_key, const char *key, const char *why)
{
	*ret_key = key;
	return err_set(err, ERR_CONFIG, "%s", why);
}

static bool check_peer_url(const char *url, const char **ret_key, struct err *err)
{
	struct refusal refusal;

	return !url[0] || http_guard_form(url, &refusal) ||
	       http_refuse_key(err, ret_key, "url", refusal.text);
}

static bool set_networks(
    struct http_peer *peer, const char *networks, const char **ret_key, struct err *err)
{
	*ret_key = "networks";
	return http_networks_parse(networks, &peer->networks, err);
}

static bool add_secret(struct http_peer *peer, const char *key, const char *secret,
    const char **ret_key, struct err *err)
{
	if (!secret[0])
		return true;
	*ret_key = key;
	if (!http_secret_parse(secret, &peer->secrets[peer->secret_count], err))
		return false;
	peer->secret_count++;
	return true;
}

static bool set_secrets(struct http_peer *peer, const struct http_peer_texts *texts,
    const char **ret_key, struct err *err)
{
	/* http_sign signs with every secret, so the old one alone would be used like a new one. */
	if (texts->old_secret[0] && !texts->secret[0])
		return http_refuse_key(err, ret_key, "old_secret", "secret is not set");
	return add_secret(peer, "secret", texts->secret, ret_key, err) &&
	       add_secret(peer, "old_secret", texts->old_secret, ret_key, err);
}

bool http_file_check(const char *path, struct err *err)
{
	owned_file FILE *file = fopen(path, "re");

	return (file && fgetc(file) != EOF) ||
	       err_set(err, ERR_CONFIG, "%.300s cannot be read: %s", path,
		   file && !ferror(file) ? "it is empty" : strerror(errno));
}

/* Reports a file that cannot be read once, at the start; libcurl would do so at each request. */
static bool set_file(
    const char *path, const char *key, const char **ret_path, const char **ret_key, struct err *err)
{
	*ret_path = path[0] ? path : NULL;
	*ret_key = key;
	return !path[0] || http_file_check(path, err);
}

static bool set_peer_tls(struct http_peer *peer, const struct http_peer_texts *texts,
    const char **ret_key, struct err *err)
{
	struct http_tls *tls = &peer->tls;

	/*
	 * libcurl would ignore a key without a certificate, and the peer would refuse the
	 * connection.
	 */
	if (texts->tls_key[0] && !texts->tls_certificate[0])
		return http_refuse_key(
		    err, ret_key, "tls_key", "there is no tls_certificate for it");
	if (texts->tls_certificate[0] && !texts->tls_key[0])
		return http_refuse_key(
		    err, ret_key, "tls_certificate", "there is no tls_key for it");
	return set_file(texts->tls_ca, "tls_ca", &tls->ca_file, ret_key, err) &&
	       set_file(texts->tls_certificate, "tls_certificate", &tls->certificate_file, ret_key,
		   err) &&
	       set_file(texts->tls_key, "tls_key", &tls->key_file, ret_key, err);
}

bool http_peer_init(struct http_peer *peer, const struct http_peer_texts *texts,
    const char **ret_key, struct err *err)
{
	*peer = (struct http_peer){0};
	return check_peer_url(texts->url, ret_key, err) &&
	       set_networks(peer, texts->networks, ret_key, err) &&
	       set_secrets(peer, texts, ret_key, err) && set_peer_tls(peer, texts, ret_key, err);
}

void http_peer_finish(struct http_peer *peer)
{
	http_networks_finish(&peer->networks);
	for (size_t i = 0; i < HTTP_PEER_SECRETS; i++)
		http_secret_finish(&peer->secrets[i]);
	*peer = (struct http_peer){0};
}

void http_signature_finish(struct http_signature *signature)
{
	text_finish(&signature->value);
}

bool http_peer_sign(const struct http_peer *peer, const char *id, int64_t now_s, const void *body,
    size_t length, struct http_signature *signature, struct http_header *headers, size_t *count,
    struct err *err)
{
	if (peer->secret_count == 0)
		return true;

	/* http_sign writes the same digits: the header must be the text that was signed. */
	snprintf(signature->timestamp, sizeof signature->timestamp, "%" PRId64, now_s);
	if (!http_sign(
		peer->secrets, peer->secret_count, id, now_s, body, length, &signature->value, err))
		return false;

	headers[(*count)++] = (struct http_header){HTTP_SIGN_ID, id};
	headers[(*count)++] = (struct http_header){HTTP_SIGN_TIMESTAMP, signature->timestamp};
	headers[(*count)++] =
	    (struct http_header){HTTP_SIGN_SIGNATURE, text_string(&signature->value)};
	return true;
}
