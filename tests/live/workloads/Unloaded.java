import java.io.ByteArrayOutputStream;
import java.io.InputStream;
import java.lang.reflect.Constructor;
import java.nio.charset.StandardCharsets;

// One class after the other, alike but for their names, each of which works a while and is unloaded: what comes next has
// its place. Which one it is called through tells the last digit of its name.
public class Unloaded {
    static byte[] code;

    static final class Loader extends ClassLoader {
        Class<?> define(byte[] bytes) { return defineClass(null, bytes, 0, bytes.length); }
    }

    static void run(int number) throws Exception {
        String text = new String(code, StandardCharsets.ISO_8859_1);
        byte[] named = text.replace("Work0000", String.format("Work%04d", number)).getBytes(StandardCharsets.ISO_8859_1);
        Constructor<?> maker = new Loader().define(named).getDeclaredConstructor();
        maker.setAccessible(true);
        Runnable work = (Runnable) maker.newInstance();
        switch (number % 4) {
            case 0: through0(work); break;
            case 1: through1(work); break;
            case 2: through2(work); break;
            default: through3(work);
        }
    }

    static void through0(Runnable work) { work.run(); }
    static void through1(Runnable work) { work.run(); }
    static void through2(Runnable work) { work.run(); }
    static void through3(Runnable work) { work.run(); }

    public static void main(String[] arguments) throws Exception {
        try (InputStream file = Unloaded.class.getResourceAsStream("/Work0000.class")) {
            ByteArrayOutputStream all = new ByteArrayOutputStream();
            file.transferTo(all);
            code = all.toByteArray();
        }
        System.out.println("ready");
        for (int number = 1; number < 10_000; number++) {
            run(number);
            System.gc();
        }
    }
}

class Work0000 implements Runnable {
    public void run() {
        long end = System.nanoTime() + 20_000_000, total = 0;
        while (System.nanoTime() < end) total += spin(1000);
        if (total == 42) System.out.println();
    }

    static long spin(int rounds) {
        long total = 0;
        for (int i = 0; i < rounds; i++) total += i % 7 * (i ^ total);
        return total;
    }
}
