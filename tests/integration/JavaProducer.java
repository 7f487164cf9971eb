import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.HexFormat;
import java.util.Map;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Produces each key of standard input (a line in hexadecimal) to each topic, as Kafka does by default. */
class JavaProducer {
    public static void main(String[] arguments) throws Exception {
        Map<String, Object> settings = Map.of("bootstrap.servers", arguments[0],
                "key.serializer", ByteArraySerializer.class.getName(),
                "value.serializer", ByteArraySerializer.class.getName());
        BufferedReader keys = new BufferedReader(new InputStreamReader(System.in));
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(settings)) {
            for (String line = keys.readLine(); line != null; line = keys.readLine()) {
                byte[] key = HexFormat.of().parseHex(line);
                for (int i = 1; i < arguments.length; i++) {
                    producer.send(new ProducerRecord<>(arguments[i], key, null));
                }
            }
        }
    }
}
