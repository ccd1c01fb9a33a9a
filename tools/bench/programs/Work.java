import java.util.*;
public class Work {
  static int words(String text) { Map<String, Integer> m = new TreeMap<>(); for (String w : text.split(" ")) m.merge(w, 1, Integer::sum); return m.size(); }
  public static void main(String[] a) {
    String text = "the quick brown fox jumps over the lazy dog ".repeat(Integer.parseInt(a[0])); int n = 0;
    for (int i = 0; i < 100; i++) n += words(text);
    System.out.println(n);
  }
}
