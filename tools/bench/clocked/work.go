// SPDX-License-Identifier: Apache-2.0
// Libraries at work, and how much processor time each function took by its thread's clock. Arguments: seconds, and
// where to leave Go's own profile.
package main

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"runtime"
	"runtime/pprof"
	"sort"
	"strconv"
	"syscall"
	"time"
	"unsafe"
)

const threadClock = 3

type item struct {
	Name  string
	Value float64
	Tags  map[string]string
}

var (
	items  []item
	text   []byte
	digits = regexp.MustCompile(`item (\d+)5","Value":0\.(\d)`)
	sink   int
)

func section_make() {
	items = items[:0]
	for i := 0; i < 2000; i++ {
		name := fmt.Sprintf("item %d", i*7919%2003)
		items = append(items, item{name, float64(i*31%97) / 97, map[string]string{"k": name}})
	}
}
func section_json() {
	var back []item
	text, _ = json.Marshal(items)
	json.Unmarshal(text, &back)
	sink += len(back)
}
func section_sort() {
	sort.Slice(items, func(i, j int) bool { return items[i].Value < items[j].Value })
	sort.Slice(items, func(i, j int) bool { return items[i].Name < items[j].Name })
}
func section_match() { sink += len(digits.FindAllIndex(text, -1)) }
func section_pack() {
	var out bytes.Buffer
	writer := gzip.NewWriter(&out)
	writer.Write(text)
	writer.Close()
	sink += out.Len()
}
func section_hash() {
	for i := 0; i < 20; i++ {
		sum := sha256.Sum256(text)
		sink += int(sum[0])
	}
}
func section_map() {
	counts := map[string]int{}
	for i := 0; i < 20000; i++ {
		counts[strconv.Itoa(i%5000)] += i
	}
	sink += len(counts)
}

func spent() int64 {
	var clock syscall.Timespec
	syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, threadClock, uintptr(unsafe.Pointer(&clock)), 0)
	return clock.Nano()
}

func main() {
	seconds, _ := strconv.Atoi(os.Args[1])
	profile, _ := os.Create(os.Args[2])
	pprof.StartCPUProfile(profile)
	runtime.LockOSThread()
	names := []string{"make", "json", "sort", "match", "pack", "hash", "map"}
	work := []func(){section_make, section_json, section_sort, section_match, section_pack, section_hash, section_map}
	took := make([]int64, len(work))
	for end := time.Now().Add(time.Duration(seconds) * time.Second); time.Now().Before(end); {
		for i, section := range work {
			before := spent()
			section()
			took[i] += spent() - before
		}
	}
	pprof.StopCPUProfile()
	profile.Close()
	for i, name := range names {
		fmt.Println(name, took[i])
	}
}
