#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <librdkafka/rdkafka.h>

#include "partitioner.h"

/* From the Java client's own test (org.apache.kafka.common.utils.UtilsTest.testMurmur2). */
static const struct {
	const char *key;
	int32_t hash;
} java_hashes[] = {
    {"21", -973932308},
    {"foobar", -790332482},
    {"a-little-bit-long-string", -985981536},
    {"a-little-bit-longer-string", -1486304829},
    {"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971},
    {"abc", 479470107},
};

static void keys_go_where_the_java_client_sends_them(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof java_hashes / sizeof *java_hashes; i++) {
		const char *key = java_hashes[i].key;

		for (int32_t count = 1; count < 200; count++)
			assert_int_equal(partitioner_of_key(key, strlen(key), count),
			    (java_hashes[i].hash & 0x7fffffff) % count);
		assert_int_equal(partitioner_of_key(key, strlen(key), INT32_MAX),
		    (java_hashes[i].hash & 0x7fffffff) % INT32_MAX);
	}
}

static void every_length_and_byte_agrees_with_librdkafka(void **state)
{
	unsigned char key[40];

	(void)state;
	srand(7);
	for (size_t length = 0; length <= sizeof key; length++)
		for (int i = 0; i < 500; i++) {
			int32_t count = 1 + rand() % 1000;

			for (size_t at = 0; at < length; at++)
				key[at] = (unsigned char)(i % 2 ? rand() : 128 + rand() % 128);
			assert_int_equal(partitioner_of_key(key, length, count),
			    rd_kafka_msg_partitioner_murmur2(NULL, key, length, count, NULL, NULL));
		}
}

static void an_unaligned_key_is_read_safely(void **state)
{
	unsigned char room[48] = {0};

	(void)state;
	for (size_t at = 0; at < 8; at++) {
		memcpy(room + at, "a-little-bit-long-string", 24);
		assert_int_equal(partitioner_of_key(room + at, 24, INT32_MAX),
		    (-985981536 & 0x7fffffff) % INT32_MAX);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(keys_go_where_the_java_client_sends_them),
	    cmocka_unit_test(every_length_and_byte_agrees_with_librdkafka),
	    cmocka_unit_test(an_unaligned_key_is_read_safely),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
