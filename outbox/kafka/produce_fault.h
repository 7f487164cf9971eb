#pragma once
/* Whom an error blames that a record of a producer was reported with. */
#include <stdint.h>

enum produce_fault {
	PRODUCE_FAULT_NONE,    /* nobody: the next producer sends it again */
	PRODUCE_FAULT_RECORD,  /* the record, for good, when it was alone in its batch */
	PRODUCE_FAULT_TOPIC,   /* all records of its topic, until somebody mends something */
	PRODUCE_FAULT_UNKNOWN, /* the record, its partition or its topic: the broker does not say */
};
/* code: rd_kafka_resp_err_t, as in struct producer_report. Any thread. */
enum produce_fault produce_fault_of(int32_t code);
