import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Scanner;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * A member of a consumer group. The member that joins first leads the group: it divides the partitions.
 * This one leaves a partition without an owner when the group has two members for the first time.
 * Arguments: bootstrap servers, group, topic. It prints each division, and ends with its input.
 */
class ForgetfulLeader {
    static boolean forgotten;

    public static class Assignor extends RangeAssignor {
        @Override
        public Map<String, List<TopicPartition>> assignPartitions(
                Map<String, List<PartitionInfo>> partitions, Map<String, Subscription> members) {
            Map<String, List<TopicPartition>> assigned = super.assignPartitions(partitions, members);
            if (members.size() == 2 && !forgotten) {
                forgotten = true;
                assigned.values().forEach(owned -> owned.removeIf(place -> place.partition() == 2));
            }
            System.out.println(members.size() + " members, "
                    + assigned.values().stream().mapToInt(List::size).sum() + " partitions");
            return assigned;
        }
    }

    public static void main(String[] arguments) throws Exception {
        Map<String, Object> settings = Map.of("bootstrap.servers", arguments[0],
                "group.id", arguments[1],
                "key.deserializer", ByteArrayDeserializer.class.getName(),
                "value.deserializer", ByteArrayDeserializer.class.getName(),
                "session.timeout.ms", 6000, "heartbeat.interval.ms", 300,
                "partition.assignment.strategy", List.of(Assignor.class));
        AtomicBoolean over = new AtomicBoolean();
        new Thread(() -> {
            Scanner input = new Scanner(System.in);
            while (input.hasNextLine()) {
                input.nextLine();
            }
            over.set(true);
        }).start();
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(settings)) {
            consumer.subscribe(List.of(arguments[2]));
            while (!over.get()) {
                consumer.poll(Duration.ofMillis(100));
            }
        }
    }
}
