function parse(n) { let o = []; for (let i = 0; i < n; i++) o.push({id: i, name: "n" + i, tags: [i, i * 2]}); return o; }
let sum = 0;
for (let k = 0; k < 120; k++) {
  const text = JSON.stringify(parse(3000));
  const back = JSON.parse(text).filter(x => /n[0-9]*7/.test(x.name)).map(x => x.id).sort((a, b) => b - a);
  sum += back.length;
}
console.log(sum);
