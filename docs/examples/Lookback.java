import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.sun.net.httpserver.Headers;
import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.security.MessageDigest;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Executors;
import javax.crypto.Mac;
import javax.crypto.spec.SecretKeySpec;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.serialization.StringSerializer;

import static java.nio.charset.StandardCharsets.UTF_8;

/** The look-back from an application's side: Kafka's client, JDBC, Jackson. See docs/guide/lookback.md. */
class Lookback implements AutoCloseable {
    // snippet: send
    private final String bizType;
    private final KafkaProducer<String, byte[]> producer;

    Lookback(String servers, String bizType) {
        this.bizType = bizType;
        producer = new KafkaProducer<>(Map.of("bootstrap.servers", servers, "acks", "all",
                "enable.idempotence", true), new StringSerializer(), new ByteArraySerializer());
    }

    void prepare(String bizId, String topic, String key, byte[] payload) throws Exception {
        send("prepare", bizId, payload, Map.of("topic", topic, "key", key));
    }

    void commit(String bizId) throws Exception {
        send("commit", bizId, null, Map.of());
    }

    void rollback(String bizId) throws Exception {
        send("rollback", bizId, null, Map.of());
    }

    /** Returns after Kafka's acknowledgement. */
    private void send(String op, String bizId, byte[] value, Map<String, String> more)
            throws Exception {
        Map<String, String> said = new HashMap<>(more);
        said.putAll(Map.of("version", "1", "op", op, "biz-type", bizType, "biz-id", bizId));
        var record = new ProducerRecord<>("look_back_msg", bizType + ":" + bizId, value);
        said.forEach((name, text) -> record.headers().add("lookback-" + name, text.getBytes(UTF_8)));
        producer.send(record).get();
    }
    // end

    @Override
    public void close() {
        producer.close();
    }

    interface Work {
        void run(Connection connection) throws Exception;
    }

    // snippet: work
    /** Call it after the prepare. The work refuses by throwing anything except SQLException. */
    void inTransaction(Connection connection, String bizId, Work work) throws Exception {
        connection.setAutoCommit(false);
        try {
            begin(connection, bizId);
            work.run(connection);
            connection.commit();
        } catch (SQLException error) { // it may have committed: the relay asks
            if (!connection.isClosed()) {
                connection.rollback();
            }
            if ("LB002".equals(error.getSQLState())) { // committed before
                commit(bizId);
            }
            throw error;
        } catch (Exception refusal) {
            connection.rollback();
            rollback(bizId);
            throw refusal;
        }
        commit(bizId);
    }

    private void begin(Connection connection, String bizId) throws SQLException {
        try (PreparedStatement query = connection.prepareStatement("select lookback_begin(?, ?)")) {
            query.setString(1, bizType);
            query.setString(2, bizId);
            query.execute();
        }
    }
    // end

    // snippet: verify
    /** Standard Webhooks: the request is recent, and one signature is of our secret (whsec_…). */
    static boolean isSigned(String secret, Headers headers, byte[] body) throws Exception {
        String id = headers.getFirst("webhook-id"), sent = headers.getFirst("webhook-timestamp");
        String signatures = headers.getFirst("webhook-signature");
        if (id == null || signatures == null || sent == null || !sent.matches("[0-9]{1,15}")
                || Math.abs(System.currentTimeMillis() / 1000 - Long.parseLong(sent)) > 300) {
            return false;
        }
        Mac mac = Mac.getInstance("HmacSHA256");
        byte[] key = Base64.getDecoder().decode(secret.substring("whsec_".length()));
        mac.init(new SecretKeySpec(key, "HmacSHA256"));
        mac.update((id + "." + sent + ".").getBytes(UTF_8));
        byte[] ours = ("v1," + Base64.getEncoder().encodeToString(mac.doFinal(body))).getBytes(UTF_8);
        boolean fits = false;
        for (String one : signatures.split(" ")) {
            fits |= MessageDigest.isEqual(ours, one.getBytes(UTF_8)); // in constant time
        }
        return fits;
    }
    // end

    static final ObjectMapper JSON = new ObjectMapper();

    // snippet: answer
    static void answer(HttpExchange exchange, String secret, String url) throws Exception {
        byte[] body = exchange.getRequestBody().readAllBytes();
        if (!isSigned(secret, exchange.getRequestHeaders(), body)) {
            exchange.sendResponseHeaders(401, -1);
            return;
        }
        JsonNode asked = JSON.readTree(body);
        List<String> ids = new ArrayList<>(); // one id or several
        (asked.has("ids") ? asked.get("ids") : JSON.createArrayNode().add(asked))
                .forEach(one -> ids.add(one.get("biz_id").asText()));
        var answers = check(url, asked.get("biz_type").asText(), ids);
        byte[] text = JSON.writeValueAsBytes(
                asked.has("ids") ? Map.of("answers", answers) : answers.get(0));
        exchange.getResponseHeaders().set("Content-Type", "application/json");
        exchange.sendResponseHeaders(200, text.length);
        exchange.getResponseBody().write(text);
    }

    static List<Map<String, String>> check(String url, String bizType, List<String> ids)
            throws SQLException {
        List<Map<String, String>> answers = new ArrayList<>();
        try (Connection connection = DriverManager.getConnection(url); // with autocommit
                PreparedStatement query = connection.prepareStatement(
                        "select biz_id, decision from lookback_check(?, ?)")) {
            query.setString(1, bizType);
            query.setArray(2, connection.createArrayOf("text", ids.toArray()));
            try (ResultSet rows = query.executeQuery()) {
                while (rows.next()) {
                    answers.add(Map.of("biz_id", rows.getString(1), "decision", rows.getString(2)));
                }
            }
        }
        return answers;
    }
    // end

    /** send SERVERS JDBC-URL TYPE, or serve PORT JDBC-URL SECRET: see tests/integration/test_guide.py. */
    public static void main(String[] arguments) throws Exception {
        if (arguments[0].equals("serve")) {
            serve(Integer.parseInt(arguments[1]), arguments[2], arguments[3]);
            return;
        }
        try (Lookback lookback = new Lookback(arguments[1], arguments[3]);
                Connection connection = DriverManager.getConnection(arguments[2])) {
            lookback.take(connection, arguments[3]);
        }
    }

    /** One that is committed, one that is refused, one that is prepared and no more. */
    private void take(Connection connection, String bizType) throws Exception {
        for (String bizId : List.of("good", "bad", "left")) {
            prepare(bizId, "orders", bizType, ("of " + bizId).getBytes(UTF_8));
        }
        Work work = with -> with.createStatement().execute("insert into work values (1)");
        inTransaction(connection, "good", work);
        try {
            inTransaction(connection, "bad", with -> {
                work.run(with);
                throw new IOException("refused");
            });
        } catch (IOException refused) {
            System.out.println("refused");
        }
    }

    private static void serve(int port, String url, String secret) throws IOException {
        HttpServer server = HttpServer.create(new InetSocketAddress("127.0.0.1", port), 0);
        server.setExecutor(Executors.newFixedThreadPool(8));
        server.createContext("/", exchange -> {
            try (exchange) {
                answer(exchange, secret, url);
            } catch (Exception error) { // no answer: the relay asks again
                System.err.println(error);
            }
        });
        server.start();
    }
}
