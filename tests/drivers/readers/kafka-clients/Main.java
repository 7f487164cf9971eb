import com.google.gson.Gson;
import com.google.gson.GsonBuilder;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

public class Main {
	record Given(String bootstrap, String topic, String group, int count) {
	}

	record Line(int partition, long offset, String key, String value, List<List<String>> headers) {
	}

	static final Gson GSON = new GsonBuilder().serializeNulls().create();

	public static void main(String[] arguments) throws Exception {
		Given given = GSON.fromJson(new InputStreamReader(System.in, "UTF-8"), Given.class);
		Map<String, Object> settings = Map.of("bootstrap.servers", given.bootstrap(), "group.id", given.group(),
				"auto.offset.reset", "earliest");
		int read = 0;
		try (var consumer = new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
			consumer.subscribe(List.of(given.topic()));
			while (read < given.count()) {
				for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofSeconds(1))) {
					System.out.println(GSON.toJson(line(record)));
					read++;
				}
			}
		}
	}

	static Line line(ConsumerRecord<byte[], byte[]> record) {
		List<List<String>> headers = new ArrayList<>();
		for (Header header : record.headers())
			headers.add(Arrays.asList(header.key(), encode(header.value())));
		return new Line(record.partition(), record.offset(), encode(record.key()), encode(record.value()), headers);
	}

	static String encode(byte[] value) {
		return value == null ? null : Base64.getEncoder().encodeToString(value);
	}
}
