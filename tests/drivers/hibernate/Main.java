import com.fasterxml.jackson.core.type.TypeReference;
import com.fasterxml.jackson.databind.DeserializationFeature;
import com.fasterxml.jackson.databind.ObjectMapper;
import jakarta.persistence.Column;
import jakarta.persistence.Entity;
import jakarta.persistence.GeneratedValue;
import jakarta.persistence.GenerationType;
import jakarta.persistence.Id;
import jakarta.persistence.MappedSuperclass;
import jakarta.persistence.Table;
import jakarta.persistence.Version;
import java.time.Instant;
import java.util.Base64;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.UUID;
import java.util.function.BiConsumer;
import java.util.function.Consumer;
import java.util.function.Supplier;
import org.hibernate.Session;
import org.hibernate.SessionFactory;
import org.hibernate.annotations.Generated;
import org.hibernate.annotations.JdbcTypeCode;
import org.hibernate.cfg.Configuration;
import org.hibernate.exception.ConstraintViolationException;
import org.hibernate.generator.EventType;
import org.hibernate.type.SqlTypes;

public class Main {
	@MappedSuperclass
	public abstract static class Message {
		String topic = given.topic;
		String key, payload;
		@Column(name = "key_bytes")
		byte[] keyBytes;
		@Column(name = "payload_bytes")
		byte[] payloadBytes;
		@JdbcTypeCode(SqlTypes.JSON)
		Map<String, String> headers = Map.of("source", "shop");
	}

	@Entity
	@Table(name = "message", schema = "outbox")
	public static class WithIdentity extends Message {
		@Id
		@GeneratedValue(strategy = GenerationType.IDENTITY)
		Long id;
		@Generated
		@Column(name = "event_id", insertable = false)
		UUID eventId;
		@Generated
		@Column(name = "created_at", insertable = false)
		Instant createdAt;
	}

	// An entity without a version is new: merge() does not look for its row first, which a writer may not read.
	@Entity
	@Table(name = "message", schema = "outbox")
	public static class WithEventId extends Message {
		@Id
		@Column(name = "event_id")
		UUID eventId = UUID.randomUUID();
		@Version
		@Generated(event = {EventType.INSERT, EventType.UPDATE})
		@Column(name = "created_at", insertable = false)
		Instant createdAt;
	}

	@Entity
	@Table(name = "message", schema = "outbox")
	public static class InBatches extends Message {
		@Id
		@Column(name = "event_id")
		UUID eventId = UUID.randomUUID();
	}

	static class Given {
		public String host, user, database, topic;
		public int port;
		public boolean pooled;
		public Map<String, String> text, json, jsonb, bytes;
	}

	static Given given;
	static SessionFactory factory;

	public static void main(String[] arguments) throws Exception {
		given = new ObjectMapper().configure(DeserializationFeature.FAIL_ON_UNKNOWN_PROPERTIES, false)
				.readValue(System.in, Given.class);
		Map<String, byte[]> bytes = new LinkedHashMap<>();
		given.bytes.forEach((name, text) -> bytes.put(name, Base64.getDecoder().decode(text)));
		factory = connect();

		text("identity-persist", WithIdentity::new, Session::persist);
		text("identity-merge", WithIdentity::new, Session::merge);
		text("assigned-persist", WithEventId::new, Session::persist);
		text("assigned-merge", WithEventId::new, Session::merge);
		text("batch", InBatches::new, Session::persist);
		bytes("identity-bytes", bytes, WithIdentity::new);
		bytes("assigned-bytes", bytes, WithEventId::new);
		bytes("batch-bytes", bytes, InBatches::new);
		factory.inTransaction(session -> given.text.forEach((name, text) -> {
			UUID event = session.createNativeQuery("select outbox.publish(:topic, :key, :payload)", UUID.class)
					.setParameter("topic", given.topic).setParameter("key", "hibernate/native/" + name)
					.setParameter("payload", text).getSingleResult();
			check(event != null, "no event id");
		}));
		System.out.println("text native");
		returned();
		refused();
		factory.close();
	}

	static SessionFactory connect() {
		Configuration configuration = new Configuration();
		configuration.setProperty("hibernate.connection.url", "jdbc:postgresql://" + given.host + ":" + given.port + "/"
				+ given.database + (given.pooled ? "?prepareThreshold=0" : ""));
		configuration.setProperty("hibernate.connection.username", given.user);
		configuration.setProperty("hibernate.hbm2ddl.auto", "validate");
		configuration.setProperty("hibernate.jdbc.batch_size", "20");
		return configuration.addAnnotatedClass(WithIdentity.class).addAnnotatedClass(WithEventId.class)
				.addAnnotatedClass(InBatches.class).buildSessionFactory();
	}

	static <T extends Message> void text(String way, Supplier<T> make, BiConsumer<Session, T> store) {
		factory.inTransaction(session -> given.text.forEach((name, text) -> {
			T message = make.get();
			message.key = "hibernate/" + way + "/" + name;
			message.payload = text;
			store.accept(session, message);
		}));
		System.out.println("text " + way);
	}

	static <T extends Message> void bytes(String way, Map<String, byte[]> bytes, Supplier<T> make) {
		factory.inTransaction(session -> bytes.forEach((name, value) -> {
			T message = make.get();
			message.keyBytes = ("hibernate/" + way + "/" + name).getBytes();
			message.payloadBytes = value;
			session.persist(message);
		}));
		System.out.println("bytes " + way);
	}

	static void returned() {
		WithIdentity first = new WithIdentity();
		store(first, "returned-identity", session -> session.persist(first));
		state("returned-identity", first.id, first.eventId, first.createdAt);
		WithEventId second = new WithEventId();
		store(second, "returned-assigned", session -> session.persist(second));
		state("returned-assigned", null, second.eventId, second.createdAt);
	}

	static void store(Message message, String way, Consumer<Session> persist) {
		message.key = "hibernate/" + way + "/string";
		message.payload = given.text.get("string");
		factory.inTransaction(persist);
	}

	// An event id of another kind than the table's does not say when it was made.
	static void state(String way, Long id, UUID event, Instant created) {
		Object[] found = factory.fromSession(session -> session.createNativeQuery(
				"select id, created_at from outbox.message_state_of(:event, :created)", Object[].class)
				.setParameter("event", event).setParameter("created", created).getSingleResult());
		check((id == null || id.equals(found[0])) && created.equals(found[1]), way + ": the state of another message");
		System.out.println("returned " + way);
	}

	static void refused() {
		InBatches message = new InBatches();
		message.payload = "{}";
		message.payloadBytes = "{}".getBytes();
		try {
			factory.inTransaction(session -> session.persist(message));
		} catch (ConstraintViolationException exception) {
			System.out.println("refused both " + exception.getConstraintName());
		}
	}

	static void check(boolean holds, String message) {
		if (!holds)
			throw new AssertionError(message);
	}
}
