use std::collections::HashMap;
#[inline(never)] fn words(text: &str) -> usize { let mut m = HashMap::new(); for w in text.split(' ') { *m.entry(w.to_string()).or_insert(0) += 1; } m.len() }
fn main() { let text = "the quick brown fox jumps ".repeat(4000); let mut n = 0;
  for i in 0..120 { n += words(&text); let mut a: Vec<u64> = (0..50000).map(|x| (x * 7919 + i) % 50021).collect(); a.sort_by(|x, y| y.cmp(x)); n += a[0] as usize; }
  println!("{n}"); }
