// SPDX-License-Identifier: Apache-2.0
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.zip.Deflater;

/** Libraries at work, and how much processor time each method took by its thread's clock. Argument: seconds. */
public class Work {
    record Item(String name, double value) {}

    interface Section {
        void run() throws Exception;
    }

    private static final Pattern DIGITS = Pattern.compile("item (\\d+)5 0\\.(\\d)");
    private static final List<Item> ITEMS = new ArrayList<>();
    private static byte[] text = {};
    private static long sink;

    static void section_make() {
        ITEMS.clear();
        for (int i = 0; i < 20000; i++) ITEMS.add(new Item("item " + i * 7919 % 20011, i * 31 % 97 / 97.0));
    }

    static void section_write() {
        StringBuilder out = new StringBuilder();
        for (Item item : ITEMS) out.append(item.name()).append(' ').append(item.value()).append('\n');
        text = out.toString().getBytes(StandardCharsets.UTF_8);
    }

    static void section_sort() {
        ITEMS.sort(Comparator.comparing(Item::value).thenComparing(Item::name));
        ITEMS.sort(Comparator.comparing(Item::name));
    }

    static void section_match() {
        Matcher matcher = DIGITS.matcher(new String(text, StandardCharsets.UTF_8));
        while (matcher.find()) sink += matcher.start();
    }

    static void section_pack() {
        Deflater deflater = new Deflater();
        deflater.setInput(text);
        deflater.finish();
        byte[] out = new byte[text.length + 100];
        sink += deflater.deflate(out);
        deflater.end();
    }

    static void section_hash() throws Exception {
        MessageDigest digest = MessageDigest.getInstance("SHA-256");
        for (int i = 0; i < 10; i++) sink += digest.digest(text)[0];
    }

    static void section_map() {
        Map<String, Integer> counts = new HashMap<>();
        for (int i = 0; i < 200000; i++) counts.merge(Integer.toString(i % 5000), i, Integer::sum);
        sink += counts.size();
    }

    public static void main(String[] args) throws Exception {
        ThreadMXBean clock = ManagementFactory.getThreadMXBean();
        String[] names = {"make", "write", "sort", "match", "pack", "hash", "map"};
        Section[] work = {Work::section_make, Work::section_write, Work::section_sort, Work::section_match,
            Work::section_pack, Work::section_hash, Work::section_map};
        long[] took = new long[work.length];
        for (long end = System.nanoTime() + Long.parseLong(args[0]) * 1_000_000_000L; System.nanoTime() < end;) {
            for (int i = 0; i < work.length; i++) {
                long before = clock.getCurrentThreadCpuTime();
                work[i].run();
                took[i] += clock.getCurrentThreadCpuTime() - before;
            }
        }
        for (int i = 0; i < work.length; i++) System.out.println(names[i] + " " + took[i]);
    }
}
