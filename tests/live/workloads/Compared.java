// What the interpreter calls compares strings, which HotSpot does with a word pushed on top of a compiled frame.
public class Compared {
    static int compare(String[] words) {
        int smaller = 0;
        for (int i = 1; i < words.length; i++) smaller += words[i - 1].compareTo(words[i]) < 0 ? 1 : 0;
        return smaller;
    }

    public static void main(String[] arguments) {
        String[] words = new String[4096];
        for (int i = 0; i < words.length; i++) words[i] = "a common beginning that takes a while to be compared " + i;
        long total = 0;
        for (int round = 0; ; round++) {
            if (round == 4_000) System.out.println("ready");
            total += compare(words);
        }
    }
}
