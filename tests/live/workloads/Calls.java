// Every method below has one possible caller in this class, the one that its name's beginning says: f_ab is called by
// f_a. Calls go by interfaces, lambdas, comparators, reflection, synchronized and recursive methods, and exceptions.
import java.lang.reflect.Method;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;

public class Calls {
    interface Step { long step(int n); }

    static final class One implements Step { public long step(int n) { return f_ab(n); } }
    static final class Two implements Step { public long step(int n) { return f_ac(n); } }
    static final class Three implements Step { public long step(int n) { return f_ad(n); } }

    static final Step[] STEPS = { new One(), new Two(), new Three() };
    static final String[] WORDS = new String[64];
    static final Method REFLECTED;
    static volatile long sink;

    static {
        for (int i = 0; i < WORDS.length; i++) WORDS[i] = "some common beginning " + (i * 7919) % 64;
        try {
            REFLECTED = Calls.class.getDeclaredMethod("f_bb", int.class);
        } catch (NoSuchMethodException error) {
            throw new AssertionError(error);
        }
    }

    static long spin(int n) {
        long total = 0;
        for (int i = 0; i < n; i++) total += i % 7 * (i ^ total);
        return total;
    }

    static long f_a(int n) { return STEPS[n % 3].step(n) + spin(20); }
    static long f_ab(int n) { return f_aba(n) + spin(30); }
    static long f_aba(int n) { return spin(100 + n % 5); }
    static double f_aca(int n) { return Math.sin(n) + Math.pow(n, 1.3); }
    static long f_ac(int n) { return (long) f_aca(n) + spin(30); }
    static synchronized long f_ada(int n) { return spin(60 + n % 7); }
    static long f_ad(int n) { return f_ada(n) + spin(10); }

    static long f_bb(int n) { return f_bba(n, 12); }
    static long f_bba(int n, int depth) { return depth == 0 ? f_bbaa(n) : f_bba(n, depth - 1) + depth; }
    static long f_bbaa(int n) { return spin(80) + n; }
    static long f_b(int n) {
        try {
            return (Long) REFLECTED.invoke(null, n);
        } catch (ReflectiveOperationException error) {
            throw new AssertionError(error);
        }
    }

    static int f_ca(String one, String two) { return f_caa(one, two) + (int) (spin(5) & 0); }
    static int f_caa(String one, String two) { return one.compareTo(two); }
    static long f_c(int n) {
        String[] words = WORDS.clone();
        Arrays.sort(words, (one, two) -> f_ca(one, two));
        return words[n % words.length].length();
    }

    static long f_da(int n) {
        Map<String, Integer> counts = new HashMap<>();
        for (int i = 0; i < 20; i++) counts.merge(WORDS[(i * n & 63)], 1, (old, one) -> f_dab(old, one));
        return counts.size();
    }
    static int f_dab(int old, int one) { return old + one + (int) (spin(8) & 0); }
    static long f_db(int n) {
        if (spin(25) != 42) throw new IllegalStateException();
        return n;
    }
    static long f_d(int n) {
        try {
            return f_da(n) + f_db(n);
        } catch (IllegalStateException error) {
            return 1;
        }
    }

    static void f_(long milliseconds) {
        long end = System.nanoTime() + milliseconds * 1_000_000, total = 0;
        for (int n = 0; System.nanoTime() < end; n++) {
            for (int i = 0; i < 200; i++) total += f_a(n + i);
            for (int i = 0; i < 50; i++) total += f_b(n + i);
            for (int i = 0; i < 5; i++) total += f_c(n + i);
            for (int i = 0; i < 20; i++) total += f_d(n + i);
        }
        sink = total;
    }

    public static void main(String[] arguments) throws Exception {
        f_(1500);
        System.out.println("ready");
        long milliseconds = arguments.length > 0 ? Long.parseLong(arguments[0]) : 60_000;
        Thread other = new Thread(() -> f_(milliseconds));
        other.setDaemon(true);
        other.start();
        f_(milliseconds);
    }
}
