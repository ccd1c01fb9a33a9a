// Three quarters of its time in one method, one quarter in another; until it is killed, or, if so told, a while after
// somebody has had it listen for requests.
public class Split {
    static long heavy(int rounds) {
        long total = 0;
        for (int i = 0; i < rounds; i++) total += i % 7 * (i ^ total);
        return total;
    }

    static long light(int rounds) {
        long total = 0;
        for (int i = 0; i < rounds; i++) total += i % 7 * (i ^ total);
        return total;
    }

    static void work(long milliseconds) {
        long end = System.nanoTime() + milliseconds * 1_000_000, total = 0;
        while (System.nanoTime() < end) {
            total += heavy(30_000);
            total += light(10_000);
        }
        if (total == 42) System.out.println();
    }

    public static void main(String[] arguments) throws Exception {
        work(500);
        System.out.println("ready");
        java.io.File socket = new java.io.File("/tmp/.java_pid" + ProcessHandle.current().pid());
        boolean waits = arguments.length > 0;
        for (int i = 0; i < 600 && !(waits && socket.exists()); i++) work(100);
        work(300);
    }
}
