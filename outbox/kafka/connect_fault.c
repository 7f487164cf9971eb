#include "connect_fault.h"

#include <openssl/x509_vfy.h>
#include <stdio.h>
#include <string.h>

static const char cure_authority[] =
    "set ssl.ca.location to the certificate of the authority that signed the broker's";
static const char cure_name[] =
    "use a host name of the certificate in bootstrap.servers and in the broker's "
    "advertised.listeners, or renew the certificate with this name";
static const char cure_client[] =
    "set ssl.certificate.location and ssl.key.location to a valid certificate of an authority "
    "that the broker trusts";
static const char cure_tls[] =
    "if it goes on, set security.protocol to SSL, or to SASL_SSL with a password";
static const char cure_plaintext[] =
    "if it goes on, set security.protocol to PLAINTEXT, or name the listener with TLS in "
    "bootstrap.servers";

/* The first row whose text occurs counts. */
static const struct {
	const char *text, *what, *cure;
	const char *before; /* the rest of the line behind it is shown; NULL: nothing is */
	bool sure;
} rows[] = {
    {"Unsupported SASL mechanism", "the broker does not offer this sasl.mechanism, but ",
	"set sasl.mechanism to one that it offers", "supported mechanisms: ", true},
    {"Request not valid in current SASL state", "the listener takes no password",
	"set security.protocol = SSL, or name the SASL listener in bootstrap.servers", NULL, true},
    {"invalid credentials", "the broker refuses the user name or the password",
	"correct sasl.username, and sasl.password or the file of sasl.password_file", NULL, true},
    {"Invalid username or password", "the broker refuses the user name or the password",
	"correct sasl.username, and sasl.password or the file of sasl.password_file", NULL, true},
    {"SASL authentication error: Authentication failed", "the broker refuses the login: ",
	"correct sasl.username, and sasl.password or the file of sasl.password_file",
	"SASL authentication error: ", true},
    {"alert bad certificate", "the broker refuses the client's certificate, or misses one",
	cure_client, NULL, true},
    {"alert certificate required", "the broker wants a certificate of the client", cure_client,
	NULL, true},
    {"alert certificate unknown", "the broker refuses the client's certificate", cure_client, NULL,
	true},
    {"alert certificate expired", "the client's certificate has expired", cure_client, NULL, true},
    {"alert unknown ca", "the broker does not know the authority of the client's certificate",
	cure_client, NULL, true},
    {"connecting to a SSL listener?", "the broker ends connections without TLS", cure_tls, NULL,
	false},
    {"broker might require SASL authentication", "the broker ends connections without a password",
	"if it goes on, set security.protocol = SASL_SSL, sasl.mechanism, sasl.username and "
	"sasl.password_file",
	NULL, false},
    {"connecting to a PLAINTEXT broker listener?", "the broker does not answer in TLS",
	cure_plaintext, NULL, false},
    {"unexpected eof while reading", "the broker ends TLS connections", cure_plaintext, NULL,
	false},
    {"wrong version number", "the listener does not speak TLS", cure_plaintext, NULL, true},
};

/* HOST:PORT of "[thrd:…]: ssl://HOST:PORT/3: …" or of "[thrd:…]: TxnCoordinator: HOST:PORT: …". */
static int write_place(const char *text, char *ret_what, size_t size)
{
	const char *prefix = strncmp(text, "[thrd:", 6) == 0 ? strstr(text, "]: ") : NULL;
	const char *start = prefix ? prefix + 3 : text, *scheme = strstr(start, "://");
	const char *role = strstr(start, "Coordinator: ");
	size_t length;

	if (scheme && scheme < start + strcspn(start, "/"))
		start = scheme + 3;
	else if (role && role < start + strcspn(start, " "))
		start = role + strlen("Coordinator: ");
	length = strcspn(start, "/ ");
	if (length > 0 && start[length - 1] == ':')
		length--;
	return length == 0 || length > 270 ? 0
					   : snprintf(ret_what, size, "%.*s: ", (int)length, start);
}

/* librdkafka ends a line with " (after 3ms in state …)". */
static void write_rest(
    const char *text, const char *before, char *ret_what, size_t size, const char *subject)
{
	const char *rest = before ? strstr(text, before) : NULL;

	if (!rest)
		return;
	rest += strlen(before);
	const char *end = strstr(rest, " (after ");
	snprintf(
	    ret_what, size, "%s%.*s", subject, end ? (int)(end - rest) : (int)strlen(rest), rest);
}

static void judge_certificate(int error, const char **ret_what, const char **ret_cure)
{
	*ret_what = "";
	switch (error) {
	case X509_V_ERR_CERT_HAS_EXPIRED:
		*ret_cure = "renew the broker's certificate, or that of its authority";
		break;
	case X509_V_ERR_CERT_NOT_YET_VALID:
		*ret_cure = "compare the clocks of this machine and of the broker";
		break;
	case X509_V_ERR_HOSTNAME_MISMATCH:
	case X509_V_ERR_IP_ADDRESS_MISMATCH:
		*ret_what = "it is for another host: ";
		*ret_cure = cure_name;
		break;
	default:
		*ret_cure = cure_authority;
	}
}

/* ret_what holds the place, of this length. */
static void explain_certificate(int error, int place, struct connect_fault *ret_fault)
{
	const char *what;

	judge_certificate(error, &what, &ret_fault->cure);
	snprintf(ret_fault->what + place, sizeof ret_fault->what - (size_t)place,
	    "the broker's certificate is refused: %s%s", what,
	    error ? X509_verify_cert_error_string(error) : "it cannot be verified");
	ret_fault->sure = true;
}

bool connect_fault_read(const char *text, int x509_error, struct connect_fault *ret_fault)
{
	int place;

	*ret_fault = (struct connect_fault){0};
	place = write_place(text, ret_fault->what, sizeof ret_fault->what);
	char *what = ret_fault->what + place;
	size_t size = sizeof ret_fault->what - (size_t)place;

	if (strstr(text, "certificate verify failed")) {
		explain_certificate(x509_error, place, ret_fault);
		return true;
	}
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		if (!strstr(text, rows[i].text))
			continue;
		int length = snprintf(what, size, "%s", rows[i].what);
		write_rest(text, rows[i].before, what + length, size - (size_t)length, "");
		ret_fault->cure = rows[i].cure;
		ret_fault->sure = rows[i].sure;
		return true;
	}
	return false;
}

const char *connect_fault_cure(const char *text)
{
	static const struct {
		const char *text, *cure;
	} cures[] = {
	    {"key values mismatch", "ssl.key.location must hold the key of the certificate in "
				    "ssl.certificate.location"},
	    {"sasl.username and sasl.password must be set",
		"set sasl.username, and sasl.password or sasl.password_file"},
	    {"No provider for SASL mechanism",
		"set sasl.mechanism to PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512"},
	    {"Unsupported SASL mechanism",
		"set sasl.mechanism to PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512"},
	    {"ssl.ca.location failed", "ssl.ca.location must name a file with PEM certificates"},
	    {"ssl.certificate.location failed",
		"ssl.certificate.location must name a file with a PEM certificate"},
	    {"ssl.key.location failed",
		"ssl.key.location must name a file with a PEM key, and ssl.key.password_file one "
		"with its passphrase if it has one"},
	};

	for (size_t i = 0; i < sizeof cures / sizeof *cures; i++)
		if (strstr(text, cures[i].text))
			return cures[i].cure;
	return NULL;
}
