// JSON and what it leaves out.
console.log(JSON.stringify({ a: undefined, b: () => 1, c: NaN, d: new Date(0), e: [undefined] }));
JSON.parse('{"a":{"b":[1,2]}}').a.b
