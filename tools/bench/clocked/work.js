// SPDX-License-Identifier: Apache-2.0
// Libraries at work, and how much processor time each function took on its thread. Argument: seconds.
"use strict";
const fs = require("fs");
const { createHash } = require("crypto");
const { deflateSync } = require("zlib");

let items = [];
let text = "";
let sink = 0;

function section_make() {
    items = Array.from({ length: 20000 }, (_, i) => ({ name: `item ${(i * 7919) % 20011}`, value: ((i * 31) % 97) / 97 }));
}
function section_json() {
    text = JSON.stringify(items, null, 1);
    sink += JSON.parse(text).length;
}
function section_sort() {
    items.sort((a, b) => a.value - b.value);
    items.sort((a, b) => (a.name < b.name ? -1 : 1));
}
function section_match() {
    for (let i = 0; i < 10; i++) sink += [...text.matchAll(/item (\d+)5",\n\s+"value": 0\.(\d)/g)].length;
}
function section_pack() {
    sink += deflateSync(text).length;
}
function section_hash() {
    for (let i = 0; i < 20; i++) sink += createHash("sha256").update(text).digest()[0];
}
function section_map() {
    const counts = new Map();
    for (let i = 0; i < 400000; i++) {
        const key = String(i % 5000);
        counts.set(key, (counts.get(key) ?? 0) + i);
    }
    sink += counts.size;
}

// The kernel adds up at ticks and switches: so far is each off, either way.
const spent = () => Number(fs.readFileSync(`/proc/self/task/${process.pid}/schedstat`, "latin1").split(" ")[0]);

const work = [section_make, section_json, section_sort, section_match, section_pack, section_hash, section_map];
const took = work.map(() => 0);
for (const end = Date.now() + 1000 * Number(process.argv[2]); Date.now() < end; ) {
    work.forEach((section, i) => {
        const before = spent();
        section();
        took[i] += spent() - before;
    });
}
work.forEach((section, i) => console.log(section.name.replace("section_", ""), took[i]));
