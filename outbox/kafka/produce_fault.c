#include "produce_fault.h"

#include "kafka_code.h"

/*
 * The codes that answer a produce request. Codes that librdkafka retries by itself for ever
 * (NOT_ENOUGH_REPLICAS, KAFKA_STORAGE_ERROR, NOT_LEADER_FOR_PARTITION …) are never reported: their
 * partition gives no answer. Every other code makes a gapless producer fatal, so that a code that
 * comes again and again costs a producer each time. Only codes that a new producer, or a little
 * time, cures for sure may be tried again at once.
 */
static const struct kafka_code faults[] = {
    /* the broker has looked at the record: no other one need fail */
    {RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE, PRODUCE_FAULT_RECORD},
    {RD_KAFKA_RESP_ERR_INVALID_MSG_SIZE, PRODUCE_FAULT_RECORD},
    {RD_KAFKA_RESP_ERR_RECORD_LIST_TOO_LARGE, PRODUCE_FAULT_RECORD},
    {RD_KAFKA_RESP_ERR_INVALID_RECORD, PRODUCE_FAULT_RECORD},
    {RD_KAFKA_RESP_ERR_INVALID_TIMESTAMP, PRODUCE_FAULT_RECORD},
    {RD_KAFKA_RESP_ERR_POLICY_VIOLATION, PRODUCE_FAULT_RECORD}, /* a check of a broker plug-in */
    /* the name of its topic is not one: the same for each record of it, and for good */
    {RD_KAFKA_RESP_ERR_TOPIC_EXCEPTION, PRODUCE_FAULT_RECORD},
    /* somebody has to grant something, on the topic */
    {RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED, PRODUCE_FAULT_TOPIC},
    /* the topic can store no record in the format that this client sends */
    {RD_KAFKA_RESP_ERR_UNSUPPORTED_COMPRESSION_TYPE, PRODUCE_FAULT_TOPIC},
    {RD_KAFKA_RESP_ERR_UNSUPPORTED_FOR_MESSAGE_FORMAT, PRODUCE_FAULT_TOPIC},
    {RD_KAFKA_RESP_ERR_UNSUPPORTED_VERSION, PRODUCE_FAULT_TOPIC},
    {RD_KAFKA_RESP_ERR_INVALID_REQUIRED_ACKS, PRODUCE_FAULT_TOPIC},
    {RD_KAFKA_RESP_ERR_INVALID_CONFIG, PRODUCE_FAULT_TOPIC},
    /* topic_metadata says whether the topic exists; the caller waits for it */
    {RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART, PRODUCE_FAULT_NONE},
    /* the state of this producer is wrong, for every topic: the next producer has its own */
    {RD_KAFKA_RESP_ERR_OUT_OF_ORDER_SEQUENCE_NUMBER, PRODUCE_FAULT_NONE},
    {RD_KAFKA_RESP_ERR_DUPLICATE_SEQUENCE_NUMBER, PRODUCE_FAULT_NONE},
    {RD_KAFKA_RESP_ERR_UNKNOWN_PRODUCER_ID, PRODUCE_FAULT_NONE},
    {RD_KAFKA_RESP_ERR_INVALID_PRODUCER_EPOCH, PRODUCE_FAULT_NONE},
    {RD_KAFKA_RESP_ERR_INVALID_PRODUCER_ID_MAPPING, PRODUCE_FAULT_NONE},
    {RD_KAFKA_RESP_ERR_PRODUCER_FENCED, PRODUCE_FAULT_NONE},
    {RD_KAFKA_RESP_ERR_INVALID_TXN_STATE, PRODUCE_FAULT_NONE},
    {RD_KAFKA_RESP_ERR_CONCURRENT_TRANSACTIONS, PRODUCE_FAULT_NONE},
    {RD_KAFKA_RESP_ERR_TRANSACTION_COORDINATOR_FENCED, PRODUCE_FAULT_NONE},
    {RD_KAFKA_RESP_ERR_COORDINATOR_LOAD_IN_PROGRESS, PRODUCE_FAULT_NONE},
    {RD_KAFKA_RESP_ERR_COORDINATOR_NOT_AVAILABLE, PRODUCE_FAULT_NONE},
    {RD_KAFKA_RESP_ERR_NOT_COORDINATOR, PRODUCE_FAULT_NONE},
    /* somebody has to grant something, for all topics: new producers have a back-off */
    {RD_KAFKA_RESP_ERR_CLUSTER_AUTHORIZATION_FAILED, PRODUCE_FAULT_NONE},
    {RD_KAFKA_RESP_ERR_TRANSACTIONAL_ID_AUTHORIZATION_FAILED, PRODUCE_FAULT_NONE},
    {RD_KAFKA_RESP_ERR_SASL_AUTHENTICATION_FAILED, PRODUCE_FAULT_NONE},
    /* the brokers are about to change; librdkafka retries these codes by itself */
    {RD_KAFKA_RESP_ERR_LEADER_NOT_AVAILABLE, PRODUCE_FAULT_NONE},
    {RD_KAFKA_RESP_ERR_NOT_LEADER_FOR_PARTITION, PRODUCE_FAULT_NONE},
    {RD_KAFKA_RESP_ERR_REQUEST_TIMED_OUT, PRODUCE_FAULT_NONE},
    {RD_KAFKA_RESP_ERR_BROKER_NOT_AVAILABLE, PRODUCE_FAULT_NONE},
    {RD_KAFKA_RESP_ERR_REPLICA_NOT_AVAILABLE, PRODUCE_FAULT_NONE},
    {RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS, PRODUCE_FAULT_NONE},
    {RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS_AFTER_APPEND, PRODUCE_FAULT_NONE},
};

/*
 * The broker codes that are left tell nothing: UNKNOWN_SERVER_ERROR is any exception in a broker
 * (of the record, the partition's files, the topic's settings), INVALID_MSG a checksum or a check
 * of an old broker, KAFKA_STORAGE_ERROR a disk, and tomorrow's codes are not known yet.
 */
enum produce_fault produce_fault_of(int32_t code)
{
	enum produce_fault otherwise =
	    code < RD_KAFKA_RESP_ERR__END ? PRODUCE_FAULT_NONE : PRODUCE_FAULT_UNKNOWN;
	return (enum produce_fault)kafka_code_meaning(
	    faults, sizeof faults / sizeof *faults, (rd_kafka_resp_err_t)code, (int)otherwise);
}
