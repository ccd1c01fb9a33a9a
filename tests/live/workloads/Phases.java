import java.lang.management.ManagementFactory;

// One method after the other works a while, each of which is compiled then; the processor's seconds of all are told.
public class Phases {
    static long work0(long x) {
        for (int k = 0; k < 2000; k++) x = x * 3L + (x >>> 3) ^ k;
        return x;
    }

    static long work1(long x) {
        for (int k = 0; k < 2000; k++) x = x * 5L + (x >>> 4) ^ k;
        return x;
    }

    static long work2(long x) {
        for (int k = 0; k < 2000; k++) x = x * 7L + (x >>> 5) ^ k;
        return x;
    }

    static long work3(long x) {
        for (int k = 0; k < 2000; k++) x = x * 9L + (x >>> 6) ^ k;
        return x;
    }

    static long work4(long x) {
        for (int k = 0; k < 2000; k++) x = x * 11L + (x >>> 7) ^ k;
        return x;
    }

    static long work5(long x) {
        for (int k = 0; k < 2000; k++) x = x * 13L + (x >>> 8) ^ k;
        return x;
    }

    static long work6(long x) {
        for (int k = 0; k < 2000; k++) x = x * 15L + (x >>> 9) ^ k;
        return x;
    }

    static long work7(long x) {
        for (int k = 0; k < 2000; k++) x = x * 17L + (x >>> 10) ^ k;
        return x;
    }

    static long work8(long x) {
        for (int k = 0; k < 2000; k++) x = x * 19L + (x >>> 11) ^ k;
        return x;
    }

    static long work9(long x) {
        for (int k = 0; k < 2000; k++) x = x * 21L + (x >>> 12) ^ k;
        return x;
    }

    static long work10(long x) {
        for (int k = 0; k < 2000; k++) x = x * 23L + (x >>> 13) ^ k;
        return x;
    }

    static long work11(long x) {
        for (int k = 0; k < 2000; k++) x = x * 25L + (x >>> 14) ^ k;
        return x;
    }

    static long work12(long x) {
        for (int k = 0; k < 2000; k++) x = x * 27L + (x >>> 15) ^ k;
        return x;
    }

    static long work13(long x) {
        for (int k = 0; k < 2000; k++) x = x * 29L + (x >>> 3) ^ k;
        return x;
    }

    static long work14(long x) {
        for (int k = 0; k < 2000; k++) x = x * 31L + (x >>> 4) ^ k;
        return x;
    }

    static long work15(long x) {
        for (int k = 0; k < 2000; k++) x = x * 33L + (x >>> 5) ^ k;
        return x;
    }

    static long work16(long x) {
        for (int k = 0; k < 2000; k++) x = x * 35L + (x >>> 6) ^ k;
        return x;
    }

    static long work17(long x) {
        for (int k = 0; k < 2000; k++) x = x * 37L + (x >>> 7) ^ k;
        return x;
    }

    static long work18(long x) {
        for (int k = 0; k < 2000; k++) x = x * 39L + (x >>> 8) ^ k;
        return x;
    }

    static long work19(long x) {
        for (int k = 0; k < 2000; k++) x = x * 41L + (x >>> 9) ^ k;
        return x;
    }

    static long work20(long x) {
        for (int k = 0; k < 2000; k++) x = x * 43L + (x >>> 10) ^ k;
        return x;
    }

    static long work21(long x) {
        for (int k = 0; k < 2000; k++) x = x * 45L + (x >>> 11) ^ k;
        return x;
    }

    static long work22(long x) {
        for (int k = 0; k < 2000; k++) x = x * 47L + (x >>> 12) ^ k;
        return x;
    }

    static long work23(long x) {
        for (int k = 0; k < 2000; k++) x = x * 49L + (x >>> 13) ^ k;
        return x;
    }

    static long call(int which, long x) {
        switch (which) {
            case 0: return work0(x);
            case 1: return work1(x);
            case 2: return work2(x);
            case 3: return work3(x);
            case 4: return work4(x);
            case 5: return work5(x);
            case 6: return work6(x);
            case 7: return work7(x);
            case 8: return work8(x);
            case 9: return work9(x);
            case 10: return work10(x);
            case 11: return work11(x);
            case 12: return work12(x);
            case 13: return work13(x);
            case 14: return work14(x);
            case 15: return work15(x);
            case 16: return work16(x);
            case 17: return work17(x);
            case 18: return work18(x);
            case 19: return work19(x);
            case 20: return work20(x);
            case 21: return work21(x);
            case 22: return work22(x);
            default: return work23(x);
        }
    }

    static long cpuNs() { return ManagementFactory.getThreadMXBean().getCurrentThreadCpuTime(); }

    public static void main(String[] arguments) {
        long begin = cpuNs(), lasts = (long) (Double.parseDouble(arguments[0]) * 1e9), total = 1, now;
        while ((now = cpuNs() - begin) < lasts)
            for (int round = 0; round < 50; round++) total += call((int) (now * 24 / lasts), total);
        System.out.println(total);
    }
}
