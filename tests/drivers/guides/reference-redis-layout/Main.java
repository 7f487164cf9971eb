import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.List;
import java.util.Set;
import java.util.stream.Collectors;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.JedisCluster;
import redis.clients.jedis.JedisPooled;
import redis.clients.jedis.UnifiedJedis;
import redis.clients.jedis.exceptions.JedisException;

/**
 * Main NAME LEASE-MS WINDOW-MS SLICES HOST:PORT…: obeys commands of standard input as dedup_driver and claims_driver
 * do. Several addresses are those of a cluster.
 *
 *   place ID           partition and offset
 *   check ID…          the states: new pending done
 *   done ID…           ok, or error fenced
 *   release ID…        ok
 *   take ID            the token, 0: somebody else has it
 *   renew ID TOKEN     true or false
 *   end ID TOKEN       true or false: releases the claim
 */
public class Main {
	private static SharedBitmap bitmap;
	private static SharedClaims claims;

	public static void main(String[] arguments) throws Exception {
		Set<HostAndPort> nodes = Arrays.stream(arguments).skip(4).map(HostAndPort::from).collect(Collectors.toSet());
		try (UnifiedJedis redis = nodes.size() == 1 ? new JedisPooled(nodes.iterator().next()) : new JedisCluster(nodes)) {
			long leaseMs = Long.parseLong(arguments[1]);
			claims = new SharedClaims(redis, arguments[0], leaseMs);
			try {
				bitmap = new SharedBitmap(redis, arguments[0], leaseMs, Long.parseLong(arguments[2]), Integer.parseInt(arguments[3]));
			} catch (IllegalArgumentException exception) {
				System.out.println("error config " + exception.getMessage());
				return;
			}
			System.out.println("open");
			BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
			for (String line; (line = input.readLine()) != null;)
				System.out.println(answer(List.of(line.trim().split(" "))));
		}
	}

	private static String answer(List<String> words) {
		try {
			return obey(words.get(0), words.subList(1, words.size()));
		} catch (JedisException exception) {
			return "error retry " + exception;
		}
	}

	private static String obey(String command, List<String> words) {
		switch (command) {
			case "place":
				return RedisLayout.partition(id(words.get(0))) + " " + RedisLayout.offset(id(words.get(0)));
			case "check":
				return words.stream().map(word -> bitmap.check(id(word)).name().toLowerCase()).collect(Collectors.joining(" "));
			case "done":
				return done(words);
			case "release":
				words.forEach(word -> bitmap.giveBack(id(word)));
				return "ok";
			case "take":
				return Long.toString(claims.take(id(words.get(0))));
			case "renew":
				return Boolean.toString(claims.renew(id(words.get(0)), Long.parseLong(words.get(1))));
			default:
				return Boolean.toString(claims.release(id(words.get(0)), Long.parseLong(words.get(1))));
		}
	}

	private static String done(List<String> words) {
		List<String> lost = new ArrayList<>(words);
		lost.removeIf(word -> bitmap.done(id(word)));
		return lost.isEmpty() ? "ok" : "error fenced somebody else took " + lost;
	}

	private static byte[] id(String word) {
		return word.startsWith("hex:") ? HexFormat.of().parseHex(word.substring(4)) : RedisLayout.bytes(word);
	}
}
