package main
import ("fmt"; "sort"; "strings")
func words(text string) int { m := map[string]int{}; for _, w := range strings.Fields(text) { m[w]++ }; return len(m) }
func work(done chan int) { n := 0; text := strings.Repeat("the quick brown fox jumps ", 4000)
  for i := 0; i < 400; i++ { n += words(text); a := make([]int, 20000); for j := range a { a[j] = (j * 7919) % 20011 }; sort.Ints(a) }
  done <- n }
func main() { done := make(chan int); go work(done); go work(done); fmt.Println(<-done + <-done) }
