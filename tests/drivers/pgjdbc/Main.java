import com.google.gson.Gson;
import java.io.ByteArrayInputStream;
import java.io.InputStreamReader;
import java.io.StringReader;
import java.sql.CallableStatement;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import java.sql.Types;
import java.time.OffsetDateTime;
import java.util.Base64;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.UUID;
import org.postgresql.PGConnection;
import org.postgresql.util.PGobject;
import org.postgresql.util.PSQLException;

public class Main {
	static class Given {
		String host, user, database, topic;
		int port;
		boolean pooled;
		Map<String, String> text, json, jsonb, bytes;
	}

	interface Setter<T> {
		void set(PreparedStatement statement, int index, T value) throws SQLException;
	}

	interface Work {
		void with(Connection connection) throws Exception;
	}

	static final String INSERT = "insert into outbox.message (topic, key, payload) values (?, ?, ?)";
	static final String INSERT_BYTES = "insert into outbox.message (topic, key_bytes, payload_bytes) values (?, ?, ?)";
	static final String PUBLISH = "select outbox.publish(?, ?, ?)";
	static final String[] RETURNED = {"id", "event_id", "created_at"};
	static final Map<String, byte[]> BYTES = new LinkedHashMap<>();
	static Given given;

	public static void main(String[] arguments) throws Exception {
		given = new Gson().fromJson(new InputStreamReader(System.in, "UTF-8"), Given.class);
		given.bytes.forEach((name, text) -> BYTES.put(name, Base64.getDecoder().decode(text)));

		connect("", Main::writeText);
		connect("", Main::writeBytes);
		connect("", Main::writeJson);
		connect("", Main::writeReturning);
		connect("", Main::askForAllColumns);
		connect("", Main::writeOtherTypes);
		connect("", connection -> refuse("bytes", connection));
		connect("&reWriteBatchedInserts=true", Main::writeRewrittenBatches);
		connect("&preferQueryMode=simple", connection -> writeInMode("simple", connection));
		connect("&preferQueryMode=extendedForPrepared", connection -> writeInMode("extended", connection));
		connect("&stringtype=unspecified", connection -> writeInMode("unspecified", connection));
		if (!given.pooled) { // with these, parameters of prepared statements are sent in binary
			connect("&prepareThreshold=1", connection -> writeInMode("prepared", connection));
			connect("&prepareThreshold=-1", connection -> writeInMode("binary", connection));
		}
	}

	// PgBouncer gives each transaction another session, in which nothing was prepared
	static void connect(String options, Work work) throws Exception {
		String url = "jdbc:postgresql://" + given.host + ":" + given.port + "/" + given.database + "?user=" + given.user
				+ (given.pooled ? "&prepareThreshold=0" : "") + options;
		try (Connection connection = DriverManager.getConnection(url)) {
			connection.setAutoCommit(false);
			work.with(connection);
			connection.commit();
		}
	}

	static void writeText(Connection connection) throws Exception {
		each("text", "setString", connection, INSERT, given.text, PreparedStatement::setString);
		each("text", "setObject", connection, INSERT, given.text, PreparedStatement::setObject);
		each("text", "setObject-varchar", connection, INSERT, given.text, (s, i, text) -> s.setObject(i, text, Types.VARCHAR));
		each("text", "setObject-other", connection, INSERT, given.text, (s, i, text) -> s.setObject(i, text, Types.OTHER));
		each("text", "setCharacterStream", connection, INSERT, given.text,
				(s, i, text) -> s.setCharacterStream(i, new StringReader(text)));
		each("text", "publish", connection, PUBLISH, given.text, PreparedStatement::setString);
		writeCalls(connection);
		batch("text", "batch", connection, INSERT, given.text, PreparedStatement::setString);

		try (Statement statement = connection.createStatement()) {
			for (var entry : given.text.entrySet()) {
				int count = statement.executeUpdate("insert into outbox.message (topic, key, payload) values ("
						+ statement.enquoteLiteral(given.topic) + ", " + statement.enquoteLiteral(key("executeUpdate", entry))
						+ ", " + statement.enquoteLiteral(entry.getValue()) + ")");
				check(count == 1, "executeUpdate returned " + count);
			}
		}
		System.out.println("text executeUpdate");

		StringBuilder rows = new StringBuilder();
		for (var entry : given.text.entrySet())
			rows.append(given.topic + "," + key("copy", entry) + ",\"" + entry.getValue().replace("\"", "\"\"") + "\"\n");
		connection.unwrap(PGConnection.class).getCopyAPI().copyIn(
				"copy outbox.message (topic, key, payload) from stdin (format csv)", new StringReader(rows.toString()));
		System.out.println("text copy");
	}

	static void writeCalls(Connection connection) throws SQLException {
		try (CallableStatement call = connection.prepareCall("{? = call outbox.publish(?, ?, ?)}")) {
			for (var entry : given.text.entrySet()) {
				call.registerOutParameter(1, Types.OTHER);
				call.setString(2, given.topic);
				call.setString(3, key("call", entry));
				call.setString(4, entry.getValue());
				call.execute();
				check(call.getObject(1) instanceof UUID, "the call returned no event id");
			}
		}
		System.out.println("text call");
	}

	static void writeBytes(Connection connection) throws Exception {
		each("bytes", "setBytes", connection, INSERT_BYTES, BYTES, PreparedStatement::setBytes);
		each("bytes", "setObject-bytes", connection, INSERT_BYTES, BYTES, PreparedStatement::setObject);
		each("bytes", "setBinaryStream", connection, INSERT_BYTES, BYTES,
				(s, i, value) -> s.setBinaryStream(i, new ByteArrayInputStream(value)));
		each("bytes", "publish-bytes", connection, PUBLISH, BYTES, PreparedStatement::setBytes);
		batch("bytes", "batch-bytes", connection, INSERT_BYTES, BYTES, PreparedStatement::setBytes);
	}

	static void writeJson(Connection connection) throws Exception {
		Setter<String> json = (s, i, text) -> s.setObject(i, object("json", text));
		Setter<String> jsonb = (s, i, text) -> s.setObject(i, object("jsonb", text));
		each("json", "PGobject-json", connection, INSERT, given.json, json);
		each("json", "publish-json", connection, PUBLISH, given.json, json);
		each("jsonb", "PGobject-jsonb", connection, INSERT, given.jsonb, jsonb);
		each("jsonb", "publish-jsonb", connection, PUBLISH, given.jsonb, jsonb);
		each("jsonb", "cast-jsonb", connection, "insert into outbox.message (topic, key, payload) values (?, ?, ?::jsonb)",
				given.jsonb, PreparedStatement::setString);
	}

	static void writeReturning(Connection connection) throws Exception {
		try (PreparedStatement statement = connection.prepareStatement(INSERT, RETURNED)) {
			set(statement, "returning/string", given.text.get("string"));
			check(statement.executeUpdate() == 1, "executeUpdate did not return 1");
			checkReturned("returning", connection, statement.getGeneratedKeys());
		}
		try (PreparedStatement statement = connection.prepareStatement(INSERT + " returning id, event_id, created_at")) {
			set(statement, "returning-query/string", given.text.get("string"));
			checkReturned("returning-query", connection, statement.executeQuery());
		}
		try (PreparedStatement statement = connection.prepareStatement(INSERT, RETURNED)) {
			set(statement, "returning-batch/string", given.text.get("string"));
			statement.addBatch();
			statement.executeBatch();
			checkReturned("returning-batch", connection, statement.getGeneratedKeys());
		}
	}

	// This asks for all columns, and a writer may read no payload.
	static void askForAllColumns(Connection connection) throws SQLException {
		try (PreparedStatement statement = connection.prepareStatement(INSERT, Statement.RETURN_GENERATED_KEYS)) {
			set(statement, "returning-all/string", given.text.get("string"));
			statement.executeUpdate();
			check(false, "an INSERT returned a payload");
		} catch (SQLException exception) {
			check("42501".equals(exception.getSQLState()), exception.toString());
		}
		connection.rollback();
	}

	static void checkReturned(String way, Connection connection, ResultSet returned) throws SQLException {
		check(returned.next(), way + ": nothing was returned");
		long id = returned.getLong("id");
		UUID event = returned.getObject("event_id", UUID.class);
		OffsetDateTime created = returned.getObject("created_at", OffsetDateTime.class);
		connection.commit();
		try (PreparedStatement statement = connection.prepareStatement("select id, created_at from outbox.message_state_of(?)")) {
			statement.setObject(1, event);
			ResultSet found = statement.executeQuery();
			check(found.next() && found.getLong(1) == id && found.getObject(2, OffsetDateTime.class).equals(created),
					way + ": the state of the message is not to be had");
		}
		System.out.println("returned " + way);
	}

	// their texts are no "DRIVER/WAY/NAME"
	static void writeOtherTypes(Connection connection) throws SQLException {
		Object[] keys = {42, 42L, (short) 4, new java.math.BigDecimal("1.50"), UUID.randomUUID(), true};
		for (String sql : new String[] {INSERT, PUBLISH, "insert into outbox.message (topic, key, payload, event_id, headers, "
				+ "deliver_at) values (?, ?, ?, gen_random_uuid(), ?::jsonb, ?)", "select outbox.publish(?, ?, ?, headers => ?, deliver_at => ?)"})
			for (Object key : keys)
				try (PreparedStatement statement = connection.prepareStatement(sql)) {
					statement.setString(1, given.topic);
					statement.setObject(2, key);
					statement.setNull(3, Types.VARCHAR);
					if (statement.getParameterMetaData().getParameterCount() > 3) {
						statement.setString(4, "{\"source\": \"shop\"}");
						statement.setObject(5, OffsetDateTime.now());
					}
					statement.execute();
				}
		connection.rollback();
	}

	static void writeRewrittenBatches(Connection connection) throws Exception {
		batch("text", "rewritten", connection, INSERT, given.text, PreparedStatement::setString);
		batch("bytes", "rewritten-bytes", connection, INSERT_BYTES, BYTES, PreparedStatement::setBytes);
		batch("jsonb", "rewritten-jsonb", connection, INSERT, given.jsonb, (s, i, text) -> s.setObject(i, object("jsonb", text)));
		refuse("rewritten-bytes-as-text", connection);
	}

	static void writeInMode(String mode, Connection connection) throws Exception {
		each("text", mode, connection, INSERT, given.text, PreparedStatement::setString);
		each("bytes", mode + "-bytes", connection, INSERT_BYTES, BYTES, PreparedStatement::setBytes);
		each("text", mode + "-publish", connection, PUBLISH, given.text, PreparedStatement::setString);
		each("bytes", mode + "-publish-bytes", connection, PUBLISH, BYTES, PreparedStatement::setBytes);
		batch("text", mode + "-batch", connection, INSERT, given.text, PreparedStatement::setString);
		connection.commit();
		refuse(mode + "-bytes-as-text", connection);
	}

	static void refuse(String way, Connection connection) throws SQLException {
		connection.commit();
		refuse(way + "-payload", connection, INSERT, given.topic, "key", "{}".getBytes());
		refuse(way + "-key", connection, INSERT, given.topic, "key".getBytes(), "{}");
		refuse(way + "-both", connection, "insert into outbox.message (topic, payload, payload_bytes) values (?, ?, ?)",
				given.topic, "{}", "{}".getBytes());
	}

	static void refuse(String way, Connection connection, String sql, Object... values) throws SQLException {
		try (PreparedStatement statement = connection.prepareStatement(sql)) {
			for (int i = 0; i < values.length; i++)
				statement.setObject(i + 1, values[i]);
			statement.execute();
			connection.commit();
		} catch (PSQLException exception) {
			System.out.println("refused " + way + " " + exception.getServerErrorMessage().getConstraint());
		}
		connection.rollback();
	}

	static <T> void each(String word, String way, Connection connection, String sql, Map<String, T> values, Setter<T> setter)
			throws SQLException {
		try (PreparedStatement statement = connection.prepareStatement(sql)) {
			for (var entry : values.entrySet()) {
				set(statement, way, sql, entry, setter);
				statement.execute();
			}
		}
		System.out.println(word + " " + way);
	}

	static <T> void batch(String word, String way, Connection connection, String sql, Map<String, T> values, Setter<T> setter)
			throws SQLException {
		try (PreparedStatement statement = connection.prepareStatement(sql)) {
			for (var entry : values.entrySet()) {
				set(statement, way, sql, entry, setter);
				statement.addBatch();
			}
			statement.executeBatch();
		}
		System.out.println(word + " " + way);
	}

	static <T> void set(PreparedStatement statement, String way, String sql, Map.Entry<String, T> entry, Setter<T> setter)
			throws SQLException {
		statement.setString(1, given.topic);
		if (sql.equals(INSERT_BYTES))
			statement.setBytes(2, key(way, entry).getBytes());
		else
			statement.setString(2, key(way, entry));
		setter.set(statement, 3, entry.getValue());
	}

	static void set(PreparedStatement statement, String name, String payload) throws SQLException {
		statement.setString(1, given.topic);
		statement.setString(2, "pgjdbc/" + name);
		statement.setString(3, payload);
	}

	static String key(String way, Map.Entry<String, ?> entry) {
		return "pgjdbc/" + way + "/" + entry.getKey();
	}

	static PGobject object(String type, String value) throws SQLException {
		PGobject object = new PGobject();
		object.setType(type);
		object.setValue(value);
		return object;
	}

	static void check(boolean holds, String message) {
		if (!holds)
			throw new AssertionError(message);
	}
}
