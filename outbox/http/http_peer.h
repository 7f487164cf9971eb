#pragma once
/*
 * A peer that an operator configured, and the settings that all requests to it share: the networks
 * that may be connected to, the secrets that sign, and TLS. They come from the texts of a section;
 * the keys have the same names in every section.
 *
 * Owned by one thread.
 */
#include "http_client.h"
#include "http_guard.h"
#include "http_sign.h"
#include "text.h"

/* A key that is not set is "". */
struct http_peer_texts {
	const char *url; /* the operator's own: only its form is checked */
	const char *networks;
	const char *secret, *old_secret;
	const char *tls_ca, *tls_certificate, *tls_key; /* paths */
};

enum { HTTP_PEER_SECRETS = 2, HTTP_PEER_HEADERS = 3 };

struct http_peer {
	struct http_networks networks;
	struct http_secret secrets[HTTP_PEER_SECRETS]; /* the new one first */
	size_t secret_count;                           /* 0: requests are not signed */
	struct http_tls tls;                           /* points into the texts */
};

/*
 * Reads files, and may block. False (ERR_CONFIG): *ret_key is the key that is wrong and the message
 * says why; call http_peer_finish in this case too. The texts must outlive the peer.
 */
bool http_peer_init(struct http_peer *peer, const struct http_peer_texts *texts,
    const char **ret_key, struct err *err) MUST_CHECK;
void http_peer_finish(struct http_peer *peer);

/* The memory of a signature's headers, {0} at first; the headers live as long as it and the id. */
struct http_signature {
	struct text value;
	char timestamp[24];
};
void http_signature_finish(struct http_signature *signature);

/*
 * Appends the headers of a signed request at headers[*count], where there is room for
 * HTTP_PEER_HEADERS; appends none if the peer has no secret. Fails as http_sign does. The body is
 * signed as it is now; now_s is in seconds since 1970.
 */
bool http_peer_sign(const struct http_peer *peer, const char *id, int64_t now_s, const void *body,
    size_t length, struct http_signature *signature, struct http_header *headers, size_t *count,
    struct err *err) MUST_CHECK;
