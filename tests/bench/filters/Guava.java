import com.google.common.hash.BloomFilter;
import com.google.common.hash.Funnel;
import java.io.ByteArrayOutputStream;
import java.nio.file.Files;
import java.nio.file.Path;

/** Guava FILE IDS RATE: as ours.c, with Guava's BloomFilter. */
public final class Guava {
	private static final int ID = 36;
	private static byte[] ids;

	/** What is put is the number of an id, in one object, so that none is made for each. */
	private static final class Place {
		int at;
	}

	private static final Funnel<Place> FUNNEL = (place, sink) -> sink.putBytes(ids, place.at, ID);

	private static int pass(BloomFilter<Place> filter, int first, int count, boolean adds) {
		Place place = new Place();
		int found = 0;
		for (int i = first; i < first + count; i++) {
			place.at = i * ID;
			if (adds)
				filter.put(place);
			else if (filter.mightContain(place))
				found++;
		}
		return found;
	}

	/** As often as the compiler needs to have seen it. */
	private static void warmUp(double rate) {
		for (int i = 0; i < 5; i++) {
			BloomFilter<Place> filter = BloomFilter.create(FUNNEL, 100000, rate);
			pass(filter, 0, 100000, true);
			pass(filter, 0, 100000, false);
			pass(filter, 100000, 100000, false);
		}
	}

	public static void main(String[] words) throws Exception {
		int count = Integer.parseInt(words[1]);
		double rate = Double.parseDouble(words[2]);
		ids = Files.readAllBytes(Path.of(words[0]));
		warmUp(rate);
		BloomFilter<Place> filter = BloomFilter.create(FUNNEL, count, rate);
		long[] times = new long[4];
		int[] found = new int[3];
		times[0] = System.nanoTime();
		for (int i = 0; i < 3; i++) {
			found[i] = pass(filter, i == 2 ? count : 0, count, i == 0);
			times[i + 1] = System.nanoTime();
		}
		if (found[1] != count)
			throw new IllegalStateException("an id was forgotten");
		ByteArrayOutputStream bytes = new ByteArrayOutputStream();
		filter.writeTo(bytes);
		System.out.printf("{\"name\": \"Guava\", \"add\": %.1f, \"there\": %.1f, \"absent\": %.1f, "
				+ "\"bits\": %.2f, \"false\": %d}%n", (times[1] - times[0]) / (double) count,
				(times[2] - times[1]) / (double) count, (times[3] - times[2]) / (double) count,
				bytes.size() * 8.0 / count, found[2]);
	}
}
