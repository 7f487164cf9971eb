/* TLS in front of a gate that the test plays, with clients that do what no program of ours does. */
#include "tls_front.h"

#include <fcntl.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rsa.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>
#include "clock.h"
#include "temporary.h"
#include "text.h"

enum { LEAVING = 2, LEAVE_MS = 400, PATIENCE_MS = 20000 };

struct world {
	char folder[TEMPORARY];
	char *certificate, *key, *other;
	struct tls_front_settings settings;
	struct tls_front *front;
	SSL_CTX *context;
};

struct client {
	int fd, gate; /* gate: the end that the gate has */
	SSL *ssl;
};

static void write_key(const char *path, EVP_PKEY *pair, const char *password)
{
	FILE *file = fopen(path, "w");

	assert_non_null(file);
	assert_true(PEM_write_PrivateKey(
	    file, pair, password ? EVP_aes_128_cbc() : NULL, NULL, 0, NULL, (void *)password));
	fclose(file);
}

static void write_certificate(const char *path, EVP_PKEY *pair)
{
	X509 *made = X509_new();
	FILE *file = fopen(path, "w");

	ASN1_INTEGER_set(X509_get_serialNumber(made), 1);
	X509_gmtime_adj(X509_getm_notBefore(made), 0);
	X509_gmtime_adj(X509_getm_notAfter(made), 3600);
	X509_set_pubkey(made, pair);
	assert_true(X509_sign(made, pair, EVP_sha256()) > 0);
	assert_non_null(file);
	assert_true(PEM_write_X509(file, made));
	fclose(file);
	X509_free(made);
}

static int set_up(void **state)
{
	struct world *world = xcalloc(1, sizeof *world);
	EVP_PKEY *pair = EVP_EC_gen("P-256");
	struct err err;

	assert_true(temporary_make(world->folder));
	world->certificate = xformat("%s/server.pem", world->folder);
	world->key = xformat("%s/server.key", world->folder);
	world->other = xformat("%s/other.key", world->folder);
	write_certificate(world->certificate, pair);
	write_key(world->key, pair, NULL);
	EVP_PKEY_free(pair);

	world->settings = (struct tls_front_settings){.section = "test",
	    .certificate = world->certificate,
	    .key = world->key,
	    .leaving = LEAVING,
	    .leave_ms = LEAVE_MS};
	world->front = tls_front_start(&world->settings, &err);
	assert_non_null(world->front);
	world->context = SSL_CTX_new(TLS_client_method());
	*state = world;
	return 0;
}

static int tear_down(void **state)
{
	struct world *world = *state;

	tls_front_stop(world->front);
	SSL_CTX_free(world->context);
	temporary_remove(world->folder);
	free(world->certificate);
	free(world->key);
	free(world->other);
	free(world);
	return 0;
}

/* A client after its handshake. */
static struct client call(const struct world *world)
{
	struct client client;
	int pair[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	assert_int_equal(fcntl(pair[1], F_SETFL, O_NONBLOCK), 0);
	client.fd = pair[0];
	client.gate = tls_front_add(world->front, pair[1]);
	assert_true(client.gate >= 0);
	client.ssl = SSL_new(world->context);
	SSL_set_fd(client.ssl, client.fd);
	assert_int_equal(SSL_connect(client.ssl), 1);
	return client;
}

static void hang_up(const struct client *client)
{
	SSL_free(client->ssl);
	close(client->fd);
}

static void wait_for_count(const struct world *world, int count)
{
	int64_t end = clock_ms() + PATIENCE_MS;

	while (tls_front_count(world->front) != count && clock_ms() < end)
		usleep(5000);
	assert_int_equal(tls_front_count(world->front), count);
}

static int64_t used_cpu_ms(void)
{
	struct timespec used;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
	return used.tv_sec * 1000 + used.tv_nsec / 1000000;
}

static void expect_refusal(const struct world *world, const char *key, const char *why)
{
	struct tls_front_settings settings = world->settings;
	struct err err;

	settings.key = key;
	assert_false(tls_front_check(&settings, &err));
	if (err.kind != ERR_CONFIG || !strstr(err.message, why))
		fail_msg("no %s: %s", why, err.message);
}

/* OpenSSL itself compares only a key of the same kind. */
static void a_key_of_another_kind_is_refused(void **state)
{
	struct world *world = *state;
	EVP_PKEY *pair = EVP_RSA_gen(2048);

	write_key(world->other, pair, NULL);
	EVP_PKEY_free(pair);
	expect_refusal(world, world->other, "it is not the key of tls_certificate");
}

static void a_key_with_a_password_is_refused_unasked(void **state)
{
	struct world *world = *state;
	EVP_PKEY *pair = EVP_EC_gen("P-256");

	write_key(world->other, pair, "secret");
	EVP_PKEY_free(pair);
	expect_refusal(world, world->other, "a password protects it");
}

static void bytes_pass_in_both_directions(void **state)
{
	struct world *world = *state;
	struct client client = call(world);
	char bytes[16] = "";

	assert_int_equal(SSL_write(client.ssl, "question", 8), 8);
	while (read(client.gate, bytes, sizeof bytes) < 0)
		usleep(1000);
	assert_string_equal(bytes, "question");
	assert_int_equal(write(client.gate, "answer", 6), 6);
	close(client.gate);
	assert_int_equal(SSL_read(client.ssl, bytes, sizeof bytes), 6);
	assert_int_equal(SSL_read(client.ssl, bytes, sizeof bytes), 0);
	assert_int_equal(SSL_get_error(client.ssl, 0), SSL_ERROR_ZERO_RETURN);
	hang_up(&client);
	wait_for_count(world, 0);
}

/* The gate's end closes with bytes unread, which is an error at ours, while nothing is read there.
 */
static void a_client_that_never_reads_ends_and_costs_no_cpu(void **state)
{
	struct world *world = *state;
	struct client client = call(world);
	static const char part[65536];
	int64_t begun, used;

	assert_int_equal(SSL_write(client.ssl, "more", 4), 4);
	for (begun = clock_ms(); clock_ms() < begun + 500; usleep(1000))
		while (write(client.gate, part, sizeof part) > 0)
			continue;
	used = used_cpu_ms();
	close(client.gate);
	wait_for_count(world, 0);
	assert_true(used_cpu_ms() - used < 300);
	hang_up(&client);
}

static bool is_gone(const struct client *client)
{
	int64_t end = clock_ms() + LEAVE_MS / 2;

	while (clock_ms() < end)
		if (send(client->fd, "x", 1, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
			return true;
	return false;
}

static void clients_that_leave_make_room_for_the_next(void **state)
{
	struct world *world = *state;
	struct client clients[2 * LEAVING];
	int64_t begun = clock_ms();

	for (int i = 0; i < 2 * LEAVING; i++) {
		clients[i] = call(world);
		close(clients[i].gate);
		wait_for_count(world, i < LEAVING ? i + 1 : LEAVING);
	}
	if (clock_ms() < begun + LEAVE_MS / 2)
		assert_true(is_gone(&clients[0]) && is_gone(&clients[1]));
	wait_for_count(world, 0);
	for (int i = 0; i < 2 * LEAVING; i++)
		hang_up(&clients[i]);
}

static void the_end_waits_for_nobody_if_no_client_is_left(void **state)
{
	struct world *world = *state;
	struct client client = call(world);
	int64_t begun;

	close(client.gate);
	hang_up(&client);
	wait_for_count(world, 0);
	begun = clock_ms();
	tls_front_stop(world->front);
	world->front = NULL;
	assert_true(clock_ms() - begun < 1000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup_teardown(a_key_of_another_kind_is_refused, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(
		a_key_with_a_password_is_refused_unasked, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(bytes_pass_in_both_directions, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(
		a_client_that_never_reads_ends_and_costs_no_cpu, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(
		clients_that_leave_make_room_for_the_next, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(
		the_end_waits_for_nobody_if_no_client_is_left, set_up, tear_down),
	};

	signal(SIGPIPE, SIG_IGN);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
