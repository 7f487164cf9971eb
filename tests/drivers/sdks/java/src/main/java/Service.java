import io.grpc.Attributes;
import io.grpc.Context;
import io.grpc.Contexts;
import io.grpc.Metadata;
import io.grpc.Server;
import io.grpc.ServerCall;
import io.grpc.ServerCallHandler;
import io.grpc.ServerInterceptor;
import io.grpc.ServerTransportFilter;
import io.grpc.Status;
import io.grpc.netty.shaded.io.grpc.netty.GrpcSslContexts;
import io.grpc.netty.shaded.io.grpc.netty.NettyServerBuilder;
import io.grpc.netty.shaded.io.netty.handler.ssl.ClientAuth;
import io.grpc.netty.shaded.io.netty.handler.ssl.SslContextBuilder;
import io.grpc.stub.StreamObserver;
import java.io.File;
import java.net.InetSocketAddress;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import javax.crypto.Mac;
import javax.crypto.spec.SecretKeySpec;
import lookback.v1.CheckAnswer;
import lookback.v1.CheckRequest;
import lookback.v1.CheckResponse;
import lookback.v1.CheckerGrpc;
import lookback.v1.Decision;

/**
 * Answers checks of the look-back with grpc-java, for tests/drivers/test_sdks.py. Its settings are properties:
 * secret, certificate, key, client_ca, age, grace, idle, streams, delay (times in milliseconds).
 *
 * <p>It prints {"port": …} first, then a JSON object for each request. The line "stop" on standard input ends it
 * gracefully; the end of standard input ends it at once.
 */
public class Service extends CheckerGrpc.CheckerImplBase {
	private static final Context.Key<Metadata> HEADERS = Context.key("headers");
	private static final String SECRET = System.getProperty("secret", "");
	private static final long DELAY = Long.getLong("delay", 0);

	/** The business type is the decision of all ids, or the name of a status. */
	@Override
	public void check(CheckRequest request, StreamObserver<CheckResponse> observer) {
		if (!SECRET.isEmpty() && !isSigned(request)) {
			observer.onError(Status.UNAUTHENTICATED.withDescription("no signature fits").asRuntimeException());
			return;
		}
		CheckResponse.Builder response = CheckResponse.newBuilder();
		List<String> ids = new ArrayList<>();
		List<Integer> attempts = new ArrayList<>();
		request.getIdsList().forEach(id -> {
			ids.add('"' + id.getBizId() + '"');
			attempts.add(id.getAttempt());
			response.addAnswers(CheckAnswer.newBuilder().setBizId(id.getBizId()).setDecision(decision(request)));
		});
		print("{\"ids\": " + ids + ", \"attempts\": " + attempts + ", \"limited\": "
				+ (Context.current().getDeadline() != null) + "}");
		pause();
		if (request.getBizType().equals("unavailable")) {
			observer.onError(Status.UNAVAILABLE.withDescription("the ledger is away").asRuntimeException());
			return;
		}
		observer.onNext(response.build());
		observer.onCompleted();
	}

	private static Decision decision(CheckRequest request) {
		switch (request.getBizType()) {
			case "commit": return Decision.DECISION_COMMIT;
			case "rollback": return Decision.DECISION_ROLLBACK;
			case "pending": return Decision.DECISION_PENDING;
			default: return Decision.DECISION_UNKNOWN;
		}
	}

	/** The relay signs the request as it sent it: a server that parsed it serializes it again. */
	private static boolean isSigned(CheckRequest request) {
		try {
			Mac mac = Mac.getInstance("HmacSHA256");
			mac.init(new SecretKeySpec(Base64.getDecoder().decode(SECRET.substring("whsec_".length())), "HmacSHA256"));
			mac.update((header("webhook-id") + "." + header("webhook-timestamp") + ".").getBytes());
			String made = "v1," + Base64.getEncoder().encodeToString(mac.doFinal(request.toByteArray()));
			return made.equals(header("webhook-signature"));
		} catch (java.security.GeneralSecurityException error) {
			throw new IllegalStateException(error);
		}
	}

	private static String header(String name) {
		return HEADERS.get().get(Metadata.Key.of(name, Metadata.ASCII_STRING_MARSHALLER));
	}

	private static void pause() {
		try {
			Thread.sleep(DELAY);
		} catch (InterruptedException error) {
			throw new IllegalStateException(error);
		}
	}

	private static synchronized void print(String line) {
		System.out.println(line);
		System.out.flush();
	}

	private static class Headers implements ServerInterceptor {
		@Override
		public <Q, A> ServerCall.Listener<Q> interceptCall(
				ServerCall<Q, A> call, Metadata headers, ServerCallHandler<Q, A> next) {
			Context context = Context.current().withValue(HEADERS, headers);
			return Contexts.interceptCall(context, call, headers, next);
		}
	}

	private static class Connections extends ServerTransportFilter {
		@Override
		public Attributes transportReady(Attributes attributes) {
			print("{\"connection\": true}");
			return attributes;
		}
	}

	private static NettyServerBuilder builder() throws Exception {
		NettyServerBuilder builder = NettyServerBuilder.forAddress(new InetSocketAddress("127.0.0.1", 0))
				.addService(new Service()).intercept(new Headers())
				.addTransportFilter(new Connections()).executor(Executors.newCachedThreadPool());
		if (Long.getLong("age") != null)
			builder.maxConnectionAge(Long.getLong("age"), TimeUnit.MILLISECONDS);
		if (Long.getLong("grace") != null)
			builder.maxConnectionAgeGrace(Long.getLong("grace"), TimeUnit.MILLISECONDS);
		if (Long.getLong("idle") != null)
			builder.maxConnectionIdle(Long.getLong("idle"), TimeUnit.MILLISECONDS);
		if (Integer.getInteger("streams") != null)
			builder.maxConcurrentCallsPerConnection(Integer.getInteger("streams"));
		if (System.getProperty("certificate") != null) {
			SslContextBuilder ssl = GrpcSslContexts.forServer(
					new File(System.getProperty("certificate")), new File(System.getProperty("key")));
			if (System.getProperty("client_ca") != null)
				ssl.trustManager(new File(System.getProperty("client_ca"))).clientAuth(ClientAuth.REQUIRE);
			builder.sslContext(ssl.build());
		}
		return builder;
	}

	public static void main(String[] arguments) throws Exception {
		Server server = builder().build().start();
		print("{\"port\": " + server.getPort() + "}");
		int first = System.in.read();
		if (first < 0)
			Runtime.getRuntime().halt(0);
		server.shutdown().awaitTermination();
		System.exit(0);
	}
}
