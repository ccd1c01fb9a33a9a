"""Small programs with inlining, templates and cold parts, compiled for the symbol tests."""

import shutil
import subprocess
from pathlib import Path

import pytest

C_SOURCE = """
#include <stdio.h>
#include <stdlib.h>
static inline int square(int x) { return x * x; }
static inline int twice(int x) { return square(x) + square(x + 1); }
static int __attribute__((noinline)) checked(int n)
{
    if (__builtin_expect(n < 0, 0)) { fprintf(stderr, "negative %d\\n", n); abort(); }
    return twice(n) + twice(n + 3);
}
int __attribute__((noinline)) work(int n)
{
    int sum = 0;
    for (int i = 0; i < n; i++)
        sum += twice(i) ^ checked(i);
    return sum;
}
int nested(int n)
{
#ifndef __clang__
    int __attribute__((noinline)) inner(int x) { return twice(x) + n; }
    return inner(n) + inner(n + 1);
#else
    return n;
#endif
}
int main(int argc, char **argv) { (void)argv; printf("%d %d\\n", work(argc * 1000), nested(argc)); return 0; }
"""

CXX_SOURCE = """
#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <variant>
#include <vector>
namespace shapes {
struct Circle { double r; double area() const { return 3.14 * r * r; } };
struct Square { double a; double area() const { return a * a; } };
using Any = std::variant<Circle, Square>;
namespace { double __attribute__((noinline)) total(const std::vector<Any> &all)
{
    double sum = 0;
    for (const auto &one : all)
        sum += std::visit([](const auto &s) { return s.area(); }, one);
    return sum;
} }
struct Base { virtual ~Base() = default; virtual int id(int) const = 0; };
struct Other { virtual ~Other() = default; virtual int other() { return 1; } };
struct Derived : Other, Base { std::string name; int id(int n) const override { return n + (int)name.size(); } };
}
int main(int argc, char **argv)
{
    std::vector<shapes::Any> all;
    std::map<std::string, int> counts;
    for (int i = 0; i < argc * 100; i++) {
        if (i % 3) all.push_back(shapes::Circle{double(i)}); else all.push_back(shapes::Square{double(i)});
        counts["k" + std::to_string(i % 7)] += i;
    }
    std::sort(all.begin(), all.end(), [](const auto &a, const auto &b) { return a.index() < b.index(); });
    std::unique_ptr<shapes::Base> base = std::make_unique<shapes::Derived>();
    try { if (argc > 5) throw std::runtime_error(argv[1]); } catch (const std::exception &e) { std::puts(e.what()); }
    std::printf("%f %zu %d\\n", shapes::total(all), counts.size(), base->id(argc));
}
"""

RUST_SOURCE = """
use std::collections::HashMap;
#[inline(always)]
fn mix(x: u64) -> u64 { x.wrapping_mul(0x9e3779b97f4a7c15) ^ (x >> 7) }
struct Table { map: HashMap<String, u64> }
impl Table {
    #[inline(never)]
    fn add(&mut self, key: &str, n: u64) { *self.map.entry(key.to_string()).or_insert(0) += mix(n); }
}
fn main() {
    let mut table = Table { map: HashMap::new() };
    for i in 0..1000u64 { table.add(&format!("k{}", i % 10), i); }
    let mut all: Vec<_> = table.map.iter().map(|(k, v)| (k.len() as u64).max(mix(*v))).collect();
    all.sort_by(|a, b| b.cmp(a));
    println!("{:?}", all.first());
}
"""


def need(tool: str) -> str:
    """The tool's path; skips the test, naming the tool, if it is not installed."""
    path = shutil.which(tool)
    if path is None:
        pytest.skip(f"{tool} is not installed")
    return path


def compile_program(folder: Path, compiler: str, *flags: str) -> Path:
    """Compile the sample program in the compiler's language; the source stays beside it."""
    tool = need(compiler)
    suffix, source = ".c", C_SOURCE
    if "++" in compiler:
        suffix, source, flags = ".cc", CXX_SOURCE, ("-std=c++17", *flags)
    elif compiler == "rustc":
        suffix, source = ".rs", RUST_SOURCE
    name = "_".join((compiler, *flags)).replace("/", "_").replace("=", "_").replace("-", "")
    path = folder / f"program{suffix}"
    path.write_text(source)
    subprocess.run([tool, *flags, "-o", folder / name, path], check=True, cwd=folder, capture_output=True)
    return folder / name
