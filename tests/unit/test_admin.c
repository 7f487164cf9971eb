#include "admin.h"

#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>
#include "listener.h"
#include "listen_address.h"
#include "metrics.h"

struct probes {
	bool live, ready;
};

static bool live(void *context, struct text *report)
{
	struct probes *probes = context;

	text_add(report, probes->live ? "[+] loops\n" : "[-] loops: main/0 stands still\n");
	return probes->live;
}

static bool ready(void *context, struct text *report)
{
	struct probes *probes = context;

	text_add(report, probes->ready ? "[+] postgres main\n" : "[-] postgres main: away\n");
	return probes->ready;
}

static struct admin *start(struct probes *probes)
{
	const struct admin_callbacks callbacks = {live, ready, probes};
	static char anything[] = "0", nothing[] = "";
	static const struct config config = {
	    .admin_listen = anything, .admin_tls = {nothing, nothing}};
	struct listener listener;
	struct err err;
	struct admin *admin;

	assert_true(listener_open("admin", "0", &listener, &err));
	admin = admin_start(&listener, &config, &callbacks, &err);
	assert_non_null(admin);
	listener_close(&listener);
	return admin;
}

static int connect_to(const struct admin *admin)
{
	struct sockaddr_in name = {.sin_family = AF_INET,
	    .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
	    .sin_port = htons((uint16_t)strtol(strrchr(admin_address(admin), ':') + 1, NULL, 10))};
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	assert_int_equal(connect(fd, (struct sockaddr *)&name, sizeof name), 0);
	return fd;
}

/* Sends the head and returns the whole answer; the caller frees. */
static char *ask(const struct admin *admin, const char *method_and_path)
{
	int fd = connect_to(admin);
	char *head =
	    xformat("%s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", method_and_path);
	struct text answer = {0};
	char part[4096];
	ssize_t length;

	assert_int_equal(write(fd, head, strlen(head)), strlen(head));
	while ((length = read(fd, part, sizeof part)) > 0)
		text_append(&answer, part, (size_t)length);
	close(fd);
	free(head);
	return answer.data ? answer.data : xstrdup("");
}

static void expect(const struct admin *admin, const char *request, int status, const char *body)
{
	char *answer = ask(admin, request);
	char *line = xformat("HTTP/1.1 %d ", status);
	const char *found = strstr(answer, "\r\n\r\n");

	assert_true(text_starts(answer, line));
	assert_non_null(found);
	assert_string_equal(found + 4, body);
	free(line);
	free(answer);
}

static void a_probe_that_is_well_answers_in_one_word(void **state)
{
	struct probes probes = {true, true};
	struct admin *admin = start(&probes);

	(void)state;
	expect(admin, "GET /livez", 200, "live\n");
	expect(admin, "GET /readyz", 200, "ready\n");
	admin_stop(admin);
}

static void verbose_lists_each_check(void **state)
{
	struct probes probes = {true, true};
	struct admin *admin = start(&probes);

	(void)state;
	expect(admin, "GET /readyz?verbose", 200, "[+] postgres main\nready\n");
	expect(admin, "GET /livez?verbose=1", 200, "[+] loops\nlive\n");
	admin_stop(admin);
}

static void a_probe_that_fails_says_why_unasked(void **state)
{
	struct probes probes = {false, false};
	struct admin *admin = start(&probes);

	(void)state;
	expect(admin, "GET /livez", 503, "[-] loops: main/0 stands still\nnot live\n");
	expect(admin, "GET /readyz", 503, "[-] postgres main: away\nnot ready\n");
	admin_stop(admin);
}

static void the_metrics_page_holds_what_was_counted(void **state)
{
	static const struct metric_row row = {
	    .name = "relay_test_total", .type = METRIC_COUNTER, .help = "Things counted."};
	const struct metric_table table = {.rows = &row, .count = 1};
	struct metric *metric;
	struct probes probes = {true, true};
	struct admin *admin = start(&probes);
	char *answer;

	(void)state;
	metric_series_all(&table, NULL, &metric, NULL);
	metric_add(metric, 3);
	answer = ask(admin, "GET /metrics");
	assert_non_null(strstr(answer, "text/plain; version=0.0.4"));
	assert_non_null(strstr(answer, "\nrelay_test_total 3\n"));
	free(answer);
	admin_stop(admin);
}

static void other_paths_and_methods_are_refused(void **state)
{
	struct probes probes = {true, true};
	struct admin *admin = start(&probes);
	char *answer;

	(void)state;
	expect(admin, "GET /", 404, "");
	expect(admin, "GET /readyz/", 404, "");
	expect(admin, "DELETE /", 404, "");
	answer = ask(admin, "POST /readyz");
	assert_true(text_starts(answer, "HTTP/1.1 405 "));
	assert_non_null(strstr(answer, "Allow: GET, HEAD"));
	free(answer);
	expect(admin, "HEAD /livez", 200, "");
	admin_stop(admin);
}

static void an_occupied_port_is_a_matter_of_configuration(void **state)
{
	struct listener listener, second;
	struct err err;

	(void)state;
	assert_true(listener_open("admin", "0", &listener, &err));
	assert_false(listener_open("api", listener.address, &second, &err));
	assert_int_equal(err.kind, ERR_CONFIG);
	assert_non_null(strstr(err.message, "[api] listen"));
	assert_non_null(strstr(err.message, "in use"));
	listener_close(&listener);
}

static void a_wrong_address_names_its_section(void **state)
{
	struct listener listener;
	struct err err;

	(void)state;
	assert_false(listener_open("api", "::1:9188", &listener, &err));
	assert_int_equal(err.kind, ERR_CONFIG);
	assert_true(
	    text_starts(err.message, "[api] listen: ::1:9188 is no address to listen on: "));
}

static void a_port_alone_is_on_loopback(void **state)
{
	static const struct {
		const char *address, *host, *port;
	} rows[] = {
	    {"9187", "127.0.0.1", "9187"},
	    {"0.0.0.0:9187", "0.0.0.0", "9187"},
	    {"localhost:0", "localhost", "0"},
	    {"[::1]:9187", "::1", "9187"},
	    {"", NULL, NULL},
	    {":9187", NULL, NULL},
	    {"::1:9187", NULL, NULL},
	    {"localhost", NULL, NULL},
	    {"localhost:70000", NULL, NULL},
	};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		char *host = NULL, *port = NULL;
		struct err err;

		assert_int_equal(listen_address_parse(rows[i].address, &host, &port, &err),
		    rows[i].host != NULL);
		assert_true(text_equal(host, rows[i].host));
		assert_true(text_equal(port, rows[i].port));
		free(host);
		free(port);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_probe_that_is_well_answers_in_one_word),
	    cmocka_unit_test(verbose_lists_each_check),
	    cmocka_unit_test(a_probe_that_fails_says_why_unasked),
	    cmocka_unit_test(the_metrics_page_holds_what_was_counted),
	    cmocka_unit_test(other_paths_and_methods_are_refused),
	    cmocka_unit_test(an_occupied_port_is_a_matter_of_configuration),
	    cmocka_unit_test(a_wrong_address_names_its_section),
	    cmocka_unit_test(a_port_alone_is_on_loopback),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
